#!/bin/sh
# Installs a lock file and the agent package into .venv, which it makes where there is none that works: with uv where it
# is at hand (faster), else with pip alone. PYTHON names the Python to make it with.
set -eu
lock=$1
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."

fail() { printf '%s\n' "$@" >&2; exit 1; }

make_venv() {
    command -v "$python" >/dev/null 2>&1 || fail "There is no $python here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3 ..."
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Muster needs Python 3.11 or newer; $python is $("$python" -V 2>&1). Name another: make PYTHON=python3.12 ..."
    "$python" -m venv --clear .venv ||
        fail "$python could not make .venv. On Debian and Ubuntu: apt install python3-venv. Then run make again."
}

# One whose making was interrupted has no pip; one that was moved or copied leads to the folder that it came from.
usable() {
    grep -qsF "$(cd -P .venv 2>/dev/null && pwd)" .venv/bin/activate || return 1
    .venv/bin/python -m pip --version >/dev/null 2>&1 && return
    command -v uv >/dev/null 2>&1 && .venv/bin/python -c ''
}

usable || make_venv
echo "Installing $lock into .venv ..."
if command -v uv >/dev/null 2>&1; then
    uv pip install -q --python .venv/bin/python --require-hashes -r "$lock"
    uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e workers/agent
else
    .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r "$lock"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e workers/agent
fi
