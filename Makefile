# Muster: everything runs from the checkout, in .venv. `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ALL ?=
ONCE ?=
PEERS ?=
FOLDER ?=
EXAMPLES ?= 20000
SEED ?=
SIZE ?=

.PHONY: help setup setup-dev demo test test-k8s fuzz simulate frameworks lint format chaos bench bench-load lock openapi screenshots clean

help:
	@echo "make setup        the runtime into ./.venv (with ./.venv/bin/muster)"
	@echo "make demo         everything on real input, until Ctrl-C; ONCE=1 ends after the summary, FOLDER=... keeps it elsewhere"
	@echo "make test         the suite; ALL=1 with every outside program and on PostgreSQL too"
	@echo "make test-k8s     Kubernetes: the scheduler's adapter and deploy/kubernetes against a real API server, built from source"
	@echo "make fuzz         malformed files for every format reader; EXAMPLES=20000 for each of its tests"
	@echo "make simulate     agents and server in virtual time under random faults; SEEDS=1000, SIZE=full, or SEED=17 alone"
	@echo "make lint         ruff, mypy, import contracts, migrations, OpenAPI"
	@echo "make chaos        kill workers, Redis, PostgreSQL and the S3 store amid transfers, at every boundary and KILLS=50 times"
	@echo "make bench        reload speed as ratios; PEERS=1 installs the other libraries to compare with. BENCH=s3 a bucket's,"
	@echo "                  scan, s3_listing and metadata the others', all one after the other"
	@echo "make bench-load   a thousand agents over real HTTP: idle, hand-out, a drill of 120,000 events, registering, resume points"

# A .venv names the folder that it was made in; one that was moved or copied with its checkout is made anew.
$(shell grep -qsF "$$(cd -P $(VENV) 2>/dev/null && pwd)" $(BIN)/activate || rm -f $(VENV)/.runtime $(VENV)/.dev)

$(VENV)/.runtime: requirements.lock workers/agent/pyproject.toml
	@PYTHON="$(PYTHON)" deploy/install.sh requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock workers/agent/pyproject.toml
	@PYTHON="$(PYTHON)" deploy/install.sh requirements-dev.lock
	@touch $@ $(VENV)/.runtime

setup: $(VENV)/.runtime
setup-dev: $(VENV)/.dev

demo: setup
	@$(BIN)/python -m deploy.demo $(if $(ONCE),--once) $(if $(FOLDER),--folder "$(FOLDER)")

test: setup-dev
	@ALL=$(ALL) $(BIN)/python -m tests.suite

# The tests that take their number of examples from this variable (tests/agent/formats/fuzz.py) are the ones meant here.
fuzz: setup-dev
	@MUSTER_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q --timeout=0 \
		$(shell grep -rlE --include='test_*.py' 'MUSTER_FUZZ_EXAMPLES|formats.fuzz import' tests/agent)

simulate: setup-dev
	@MUSTER_SIMULATE_FIRST=$(SEED) MUSTER_SIMULATE_SEEDS=$(if $(SEED),1,$(or $(SEEDS),1000)) MUSTER_SIMULATE_SIZE=$(SIZE) \
		$(BIN)/python -m pytest -q --timeout=0 $(if $(SEED),,-n auto) tests/simulation/test_seeds.py -k befalls

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python manage.py makemigrations --check --dry-run
	@deploy/check-openapi.sh

format:
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

chaos: setup-dev
	@MUSTER_CHAOS_KILLS=$(or $(KILLS),50) $(BIN)/python -m pytest -q tests/transfers/test_crashes.py \
		tests/contract/test_transfers_among_crashes.py

# The API server is built once, from Debian's source: as root, in about ten minutes.
KUBE ?= .venv-kube
test-k8s: setup-dev
	@tests/servers/build-kube-apiserver.sh $(KUBE)
	@MUSTER_KUBE_APISERVER="$(abspath $(KUBE))/kube-apiserver" $(BIN)/python -m pytest -q -m kubernetes tests/fleet tests/deploy

BENCH ?= reload
BENCHES := reload s3 scan s3_listing metadata pages
bench-load: setup-dev
	@$(BIN)/python -m tests.bench.bench_load

bench: setup-dev $(if $(PEERS),.venv-peers/.ready)
	@for one in $(if $(filter all,$(BENCH)),$(BENCHES),$(BENCH)); do $(BIN)/python -m tests.bench.bench_$$one || exit 1; done

.venv-peers/.ready: tests/bench/requirements-peers.txt
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/pip install -q -r tests/bench/requirements-peers.txt
	@touch $@

# Real frameworks for deploy/examples: gigabytes, in an environment of their own that nothing of Muster imports.
frameworks: .venv-frameworks/.ready
.venv-frameworks/.ready: tests/examples/requirements.txt
	@$(PYTHON) -m venv .venv-frameworks
	@.venv-frameworks/bin/pip install -q -r tests/examples/requirements.txt
	@touch $@

openapi: setup-dev
	@$(BIN)/python manage.py spectacular --file docs/openapi.yaml
	@$(BIN)/python -m deploy.client_types

screenshots: setup-dev
	@$(BIN)/python -m deploy.screenshots

# The locks hold hashes and no addresses: one file serves every Python from 3.11 by its markers.
lock: setup-dev
	@$(BIN)/pip install -q uv
	@$(BIN)/uv pip compile -q pyproject.toml --extra otel --extra oidc --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header -o requirements.lock
	@$(BIN)/uv pip compile -q workers/agent/pyproject.toml --extra s3 --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header -c requirements.lock -o requirements-agent.lock
	@$(BIN)/uv pip compile -q pyproject.toml --extra otel --extra oidc --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) .venv-peers .venv-frameworks .venv-kube .demo
