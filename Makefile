# Everything a person does with a checkout. `make help` lists it.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STUBBED := $(shell find protos -name '*.proto')

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/uv: requirements/uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Legato needs Python 3.11 or later: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv || { echo "The venv module is missing: install python3-venv" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.lock
	@touch $@

.venv/run: .venv/uv requirements/run.lock pyproject.toml
	@echo "Installing what the service runs on ..."
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/run.lock
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --no-build-isolation --no-deps -e .
	@touch $@

.venv/dev: .venv/run requirements/dev.lock
	@echo "Installing what the tests run on ..."
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/dev.lock
	@touch $@

.PHONY: setup
setup: .venv/run ## Make .venv from the hashed lock

.PHONY: protos
protos: .venv/dev ## Write the typed stubs anew from the .proto files
	@$(BIN)/python -m grpc_tools.protoc -I . --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc --python_out=. --grpc_python_out=. --mypy_out=quiet:. --mypy_grpc_out=quiet:. $(STUBBED)

.PHONY: lock
lock: .venv/uv ## Resolve the dependencies anew
	@for name in run dev; do \
	  $(BIN)/uv pip compile pyproject.toml $$( [ $$name = dev ] && echo --extra dev ) --quiet --upgrade --universal --generate-hashes \
	    --no-header --no-emit-index-url --no-annotate --python-version 3.11 -o requirements/$$name.lock; \
	done
