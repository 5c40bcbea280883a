# Everything a person does with a checkout. `make help` lists it.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# Tests of the service mostly wait, for processes to start and for time to pass, and unit tests for timers. Workers are
# forks of the process that has collected the tests: docs/decisions/0127-workers-are-forks.md.
TEST_PROCESSES ?= 4
CHECK_PROCESSES ?= 4
STUBBED := $(shell find protos -name '*.proto')
COMPILED := $(shell find services -name '*.[ch]')
# Compiled bytecode is kept in one place, whatever the environment says: every test of the whole service starts
# processes, and without it each of them compiles its libraries anew.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/uv: requirements/uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { echo "Legato runs on Python 3.11 to 3.14, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Install one of those and say where it is: make PYTHON=/path/to/python3.13 run" >&2; exit 1; }
	@echo "Creating .venv ..."
	@$(PYTHON) -m venv .venv || { echo "The venv module is missing: install python3-venv" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.lock
	@touch $@

.venv/run: .venv/uv requirements/build.lock requirements/run.lock requirements/local-model.lock pyproject.toml $(COMPILED)
	@echo "Installing the runtime dependencies ..."
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/build.lock -r requirements/run.lock -r requirements/local-model.lock
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --no-build-isolation --no-deps -e .
	@touch $@

.venv/dev: .venv/run requirements/dev.lock
	@echo "Installing the development dependencies ..."
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/dev.lock
	@touch $@

.venv/docs: .venv/dev requirements/docs.lock
	@echo "Installing the documentation tools ..."
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/docs.lock
	@touch $@

.PHONY: setup
setup: .venv/run ## Create .venv from the lock file with hashes

.PHONY: run
run: .venv/run ## Start the whole service; Ctrl-C stops it. Options: make run ARGS="--port 9000"
	@$(BIN)/legato up --welcome $(ARGS)

# $(call write_stubs,FOLDER): FOLDER/legato_protos has the stubs of protos/legato, which import each other by that name.
write_stubs = stubs=$$(mktemp -d) && $(BIN)/python -m grpc_tools.protoc -I protos --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc --python_out=$$stubs --grpc_python_out=$$stubs --mypy_out=quiet:$$stubs --mypy_grpc_out=quiet:$$stubs $(STUBBED) && \
  find $$stubs -type f -exec sed -i -E 's/^(from|import) legato\./\1 legato_protos./' {} + && \
  mkdir -p $(1)/legato_protos && cp -r $$stubs/legato/. $(1)/legato_protos && rm -rf $$stubs

.PHONY: protos
protos: .venv/dev ## Regenerate the typed stubs and the RPC reference from the .proto files
	@$(call write_stubs,.)
	@$(BIN)/python -m docs.rpc_reference

.PHONY: stubs
stubs: .venv/dev ## Generate stubs of the chat service in TypeScript and Go, in build/stubs
	@$(BIN)/python -m tests.support.toolchains.stubs

.PHONY: go-example
go-example: .venv/dev ## Compile the example in Go, and run it against the service (two minutes, on Debian)
	@$(BIN)/pytest -q -m apart tests/examples

.PHONY: agents-page
agents-page: .venv/dev ## After a change of the table of agents: write docs/agents.md from it
	@$(BIN)/python -m docs.agents_page

.PHONY: baseline
baseline: .venv/dev ## After a release: record the .proto files that later ones must be compatible with
	@$(BIN)/buf build --exclude-source-info -o protos/baseline.binpb

.PHONY: alerts
alerts: ## After a change of alerts.yml: write it as the resource for the Prometheus operator
	@{ printf '%s\n' '# Written by make alerts.' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
	  'metadata:' '  name: legato' '  labels: {app.kubernetes.io/name: legato}' 'spec:'; \
	  sed 's/^./  &/' deploy/observability/alerts.yml; } > deploy/observability/prometheus-rule.yaml

.PHONY: docs
docs: .venv/docs ## Build docs/ into a static site with search and the API reference, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

.PHONY: format
format: .venv/dev ## Format the code, and apply the linter's safe fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

.PHONY: lint
lint: .venv/dev ## Run all static checks
	@echo "Style ..."
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@echo "Types ..."
	@$(BIN)/mypy --no-error-summary
	@echo "Imports ..."
	@$(BIN)/lint-imports --no-logo > .venv/imports.txt 2>&1 || { cat .venv/imports.txt; exit 1; }
	@echo "Protos: compatibility, and that the committed stubs are current ..."
	@$(BIN)/buf lint
	@$(BIN)/buf breaking --against protos/baseline.binpb
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call write_stubs,$$fresh) && \
	  diff -r --exclude=__init__.py --exclude=__pycache__ --exclude=pyproject.toml --exclude=README.md --exclude=py.typed --exclude=client legato_protos "$$fresh/legato_protos" || \
  { echo "The stubs are not those of the .proto files: make protos" >&2; exit 1; }
	@echo "Images and compose file ..."
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker-compose.yml

.PHONY: check
check: .venv/dev ## Run lint and the unit tests: no database, no service (a minute)
	@$(MAKE) --no-print-directory --jobs 2 lint unit-tests

.PHONY: unit-tests
unit-tests: .venv/dev
	@echo "Unit tests ..."
	@$(BIN)/pytest -q -m "unit and not long" --workers $(CHECK_PROCESSES)

.PHONY: test
test: .venv/dev ## Run lint and all tests but the long ones; they start their own databases (README.md has how long)
	@$(MAKE) --no-print-directory --jobs 2 lint all-tests

# $(call run_tests,MARKERS,FOLDERS_AND_OPTIONS,OPTIONS_OF_SECOND_RUN): what fails runs once more, alone.
WORKERS = --workers $(TEST_PROCESSES)
run_tests = $(BIN)/pytest -q -m $(1) $(WORKERS) $(2) || { [ $$? -eq 1 ] && \
	  echo "What failed runs once more, by itself. If it passes now it depends on how busy the machine is: worth a look." && \
	  $(BIN)/pytest -q -m $(1) --last-failed --last-failed-no-failures none $(2) $(3); }
run_long = $(call run_tests,"long and not apart",$(1))

.PHONY: all-tests
all-tests: .venv/dev
	@echo "Tests ..."
	@$(call run_tests,"not long")

# What `make test` leaves out, in lanes that CI runs beside each other: each test that is long is in one of these folders.
.PHONY: test-long
test-long: test-browser test-campaigns test-deploy test-stores ## Run the tests that `make test` leaves out (half an hour)

.PHONY: test-browser
test-browser: .venv/dev ## Judge each state of the console's pages in the look in which `make test` does not
	@$(call run_long,tests/console)

.PHONY: test-campaigns
test-campaigns: .venv/dev ## Run the short form of each campaign: faults, fuzz, overload, drain, revocation, chaos
	@$(call run_long,tests/campaigns)

.PHONY: test-deploy
test-deploy: .venv/dev ## Test the manifests, alerts, examples and measurements
	@$(call run_long,tests/agents tests/bench tests/deploy tests/examples)

.PHONY: test-stores
test-stores: .venv/dev ## Test on PostgreSQL what hardly differs by the store, and seeded bugs, upgrades and the HTTP corpus
	@$(call run_long,tests/e2e tests/services)

# Compiles whatever the tests import, before processes of pytest-xdist would each do it for themselves.
.venv/compiled: .venv/dev
	@echo "Compiling what the tests import ..."
	@$(BIN)/pytest -q --collect-only > .venv/collected.txt || { tail -n 40 .venv/collected.txt; exit 1; }
	@touch $@

.PHONY: agents
agents: .venv/compiled ## Install agents and libraries at pinned versions, and run them against the service (ten minutes). Options: make agents ARGS="-k codex"
	@$(BIN)/pytest -q -m apart -n 2 tests/agents $(ARGS)

# Coverage is gathered from the processes of pytest-xdist only.
.PHONY: coverage
coverage: WORKERS = -n $(TEST_PROCESSES) --dist worksteal
coverage: .venv/compiled ## Run the tests of `make test` with coverage.py, and check that they run enough lines of the product (half an hour on Python 3.11)
	@$(call run_tests,"not long",--cov --cov-report= --cov-fail-under=0,--cov-append)
	@$(BIN)/coverage report --skip-covered

.PHONY: properties
properties: .venv/dev ## Try the properties that Hypothesis checks on a thousand examples each (ten minutes)
	@$(BIN)/pytest -q -n 2 -m hypothesis --hypothesis-profile thorough

.PHONY: seeded-bugs
seeded-bugs: .venv/dev ## Check that the tests of the ledger catch every seeded bug (two minutes)
	@$(BIN)/pytest -q -n 2 tests/services/metering/model/test_seeded_bugs.py

.PHONY: messages
messages: .venv/dev ## After a change of the console's words: gather them in the catalogues, for translation
	@$(BIN)/python -m tests.console.messages

.PHONY: measures
measures: .venv/dev ## Measure the source tree: places of a feature, foreign state, `Any`, lines. Options: make measures ARGS="0.2.0 main", ARGS="--added main..branch"
	@$(BIN)/python -m tests.contracts.measures $(ARGS)

.PHONY: screenshots
screenshots: .venv/dev ## Take pictures of the console's pages, in build/screenshots. Options: make screenshots ARGS="keys overview --language fr"
	@$(BIN)/python -m tests.console.browser.screenshots $(ARGS)

.PHONY: console-figures
console-figures: .venv/dev ## Measure the console's pages: weight, first paint, CPU time, memory, revocation (a minute)
	@$(BIN)/python -m bench.console

.PHONY: first-answer
first-answer: .venv/dev ## Time a newcomer's way from `legato up` to the first words of an answer in the playground
	@$(BIN)/python -m bench.console.first_answer

LIGHTHOUSE := lighthouse@13.5.0

.PHONY: lighthouse
lighthouse: .venv/dev ## Have Lighthouse (from npm, 180 MB) judge the console's pages. Options: make lighthouse ARGS="keys usage"
	@mkdir -p build/lighthouse && npm install --prefix build/lighthouse --silent --no-audit --no-fund $(LIGHTHOUSE)
	@$(BIN)/python -m tests.console.browser.lighthouse $(ARGS)

.PHONY: aria-snapshots
aria-snapshots: .venv/dev ## Write what the console's pages tell screen readers anew; read the difference before you commit it
	@WRITE_ARIA_SNAPSHOTS=1 $(BIN)/pytest -q tests/console/browser/test_accessibility.py

.PHONY: upgrades
upgrades: .venv/dev ## Use the data of each release on both stores with the service of this version (a minute)
	@$(BIN)/pytest -q -n 2 tests/e2e/upgrades

.PHONY: bench
bench: .venv/dev ## Measure the service on this machine (twenty-five minutes). Options: make bench ARGS="--only agents"
	@$(BIN)/python -m bench $(ARGS)

.PHONY: bench-guard
bench-guard: .venv/dev ## Compare the cost of a chat with a bare relay's, on a machine that does nothing else (a minute)
	@$(BIN)/pytest -q -m apart tests/bench

.PHONY: bench-peers
bench-peers: .venv/dev ## Measure LiteLLM, TensorZero and Portkey beside the service, and write the README's table (twelve minutes). Options: make bench-peers ARGS="--only LiteLLM"
	@$(BIN)/python -m bench.peers $(ARGS)

.PHONY: bench-scale
bench-scale: .venv/dev ## The same with more processes, streams, accounts, keys and bookings (fifteen minutes)
	@$(BIN)/python -m bench.scale $(ARGS)

.PHONY: soak
soak: .venv/dev ## Look for leaks while half of the clients disconnect (half an hour). Options: make soak ARGS="--minutes 3"
	@$(BIN)/python -m bench.soak $(ARGS)

.PHONY: faults
faults: .venv/dev ## Kill every process at every step, and check the ledger (one to two hours). Options: make faults ARGS="--kills 5 --points edge"
	@$(BIN)/python -m tests.campaigns.faults $(ARGS)

.PHONY: rollout
rollout: .venv/dev ## Release 0.1.0, 0.2.0 and this version one after the other under load, and check the ledger (five minutes)
	@$(BIN)/python -m tests.campaigns.rollout

.PHONY: revocations
revocations: .venv/dev ## Revoke keys while connections break and auth processes die (ten minutes). Options: make revocations ARGS="--revocations 100"
	@$(BIN)/python -m tests.campaigns.revocation $(ARGS)

.PHONY: failover-test
failover-test: .venv/dev ## Freeze, kill and replace PostgreSQL under load, and check that chats wait for it (two minutes). Options: make failover-test ARGS="--workers 1"
	@$(BIN)/python -m tests.campaigns.failover $(ARGS)

.PHONY: continuations
continuations: .venv/dev ## Cut answers at random places, and check that they go on without a seam and are charged once (three minutes). Options: make continuations ARGS="--cuts 50 --seed 7"
	@$(BIN)/python -m tests.campaigns.continuations $(ARGS)

.PHONY: killed-callers
killed-callers: .venv/dev ## Kill programs that call over gRPC at random moments, and check the ledger (two minutes). Options: make killed-callers ARGS="--callers 50 --seed 7"
	@$(BIN)/python -m tests.campaigns.callers $(ARGS)

.PHONY: chaos
chaos: .venv/dev ## Let one of two models fail and recover under load (five minutes). Options: make chaos ARGS="--clients 8 --seconds 5"
	@$(BIN)/python -m tests.campaigns.chaos $(ARGS)

.PHONY: fuzz
fuzz: .venv/dev ## Fuzz what providers, clients, owners of documents and visitors of the console send, and check that other clients are not affected (a minute a side). Options: make fuzz ARGS="--seconds 600 --seed 7 --side provider"
	@$(BIN)/python -m tests.campaigns.fuzz $(ARGS)

.PHONY: openapi-fuzz
openapi-fuzz: .venv/dev ## Generate requests from the OpenAPI document, and check the responses against it (two minutes). Options: make openapi-fuzz ARGS="--examples 5000 --seed 7"
	@$(BIN)/python -m tests.campaigns.openapi $(ARGS)

.PHONY: overload
overload: .venv/dev ## Check admission: no refusals with a slow provider, stable goodput with a saturated one (five minutes)
	@$(BIN)/python -m tests.campaigns.overload $(ARGS)

IMAGE ?= legato:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
.PHONY: image
image: ## Build an image from the commit, with the same bytes wherever and whenever. Options: make image IMAGE=legato-local-model:1.2.3 ARGS="--target local-model"
	@engine=$$(command -v podman || command -v docker) && epoch=$$(git log -1 --format=%ct) && context=$$(mktemp -d) && trap 'rm -rf "$$context"' EXIT && \
	git -c tar.umask=0022 archive HEAD | tar -x -C "$$context" && \
	case $$engine in \
	  */podman) podman build --no-cache --timestamp $$epoch $(BUILD_ARGS) $(ARGS) --tag $(IMAGE) "$$context";; \
	  *) docker buildx build --no-cache --build-arg SOURCE_DATE_EPOCH=$$epoch --output type=docker,rewrite-timestamp=true $(BUILD_ARGS) $(ARGS) --tag $(IMAGE) "$$context";; \
	esac && $$engine image inspect --format '$(IMAGE) {{.Id}}' $(IMAGE)

SBOM ?= build/sbom
.PHONY: sbom
sbom: .venv/dev ## Write what the lock files and the image consist of as CycloneDX documents, in build/sbom. Without the image: make sbom IMAGE=
	@mkdir -p $(SBOM)
	@for lock in run local-model; do $(BIN)/python -W ignore -m cyclonedx_py requirements requirements/$$lock.lock --pyproject pyproject.toml --output-reproducible --validate -o $(SBOM)/$$lock.cdx.json 2>/dev/null || exit 1; done
	@if [ -n "$(IMAGE)" ]; then $(BIN)/python -m deploy.release.sbom $(IMAGE) requirements/run.lock > $(SBOM)/image.cdx.json; fi
	@ls $(SBOM)/*.cdx.json

.PHONY: pin-images
pin-images: ## Write the digests of the images of others, in deploy/images.lock and where they are named. To check only: make pin-images ARGS=--check
	@$(PYTHON) -m deploy.release.images $(ARGS)

.PHONY: compose-test
compose-test: .venv/dev ## Upgrade the last release with docker-compose.yml and docker or podman, and test the service
	@$(BIN)/python -m tests.deploy.compose

.PHONY: kube-test
kube-test: .venv/dev ## Upgrade the last release with the Kubernetes manifests and podman, and test the service
	@$(BIN)/python -m tests.deploy.kubernetes.kube

# $(call write_lock,NAME,SOURCES)
UPGRADE ?= --upgrade
write_lock = $(BIN)/uv pip compile $(2) --quiet $(UPGRADE) --universal --generate-hashes --no-header --no-emit-index-url --no-annotate --python-version 3.11 -o requirements/$(1).lock

.PHONY: drain-test
drain-test: .venv/dev ## Restart every process under 200 streams, and check that no client notices (a minute). Options: make drain-test ARGS="--rounds 5"
	@$(BIN)/python -m tests.campaigns.drain $(ARGS)

.PHONY: lock
lock: .venv/uv ## Resolve the dependencies again. To keep the versions: make lock UPGRADE=
	@$(call write_lock,build,--group build)
	@$(call write_lock,run,pyproject.toml)
	@$(call write_lock,local-model,--group local-model --constraints requirements/run.lock)
	@$(call write_lock,dev,pyproject.toml --extra dev --group local-model --constraints requirements/run.lock)
	@$(call write_lock,docs,--group docs --constraints requirements/dev.lock)
	@$(call write_lock,agents,--group agents)
