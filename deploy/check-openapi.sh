#!/bin/sh
# The committed OpenAPI document is the one that the code gives; warnings of the generator are errors.
set -eu
cd "$(dirname "$0")/.."
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
.venv/bin/python manage.py spectacular --validate --fail-on-warn --file "$fresh"
diff -u docs/openapi.yaml "$fresh" || { echo "docs/openapi.yaml is out of date: run 'make openapi'."; exit 1; }
.venv/bin/python -m deploy.client_types --check ||
    { echo "The typed client is out of date: run 'make openapi' (python -m deploy.client_types)."; exit 1; }
