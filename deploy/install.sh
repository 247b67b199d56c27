#!/bin/sh
# Installs a lock file and the agent package into .venv: with uv where it is at hand (faster), else with pip alone.
set -eu
lock=$1
cd "$(dirname "$0")/.."
echo "Installing $lock into .venv ..."
if command -v uv >/dev/null 2>&1; then
    uv pip install -q --python .venv/bin/python --require-hashes -r "$lock"
    uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e workers/agent
else
    .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r "$lock"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e workers/agent
fi
