#!/bin/sh
# The committed OpenAPI document is the one that the code gives; warnings of the generator are errors.
set -eu
cd "$(dirname "$0")/.."
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
.venv/bin/python manage.py spectacular --validate --fail-on-warn --file "$fresh"
# Within v1 the API only grows. Before a commit it is compared with the last one; CI compares with OPENAPI_BASE.
before=$(mktemp)
trap 'rm -f "$fresh" "$before"' EXIT
if [ -z "${BREAKING:-}" ] && git show "${OPENAPI_BASE:-HEAD}:docs/openapi.yaml" >"$before" 2>/dev/null; then
    .venv/bin/python -m deploy.api_compatibility "$before" "$fresh" ||
        { echo "This breaks clients of the API. If it must be, say so in CHANGELOG.md and run with BREAKING=1."; exit 1; }
fi
diff -u docs/openapi.yaml "$fresh" || { echo "docs/openapi.yaml is out of date: run 'make openapi'."; exit 1; }
.venv/bin/python -m deploy.client_types --check ||
    { echo "The typed client is out of date: run 'make openapi' (python -m deploy.client_types)."; exit 1; }
