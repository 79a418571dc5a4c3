# `make up` needs Python 3.11 or newer, make and git; everything else goes into .venv.
# Another Python: make up PYTHON=/path/to/python3.12. Another place: make up VENV=/path.

VENV ?= .venv
UV := 0.13.9
STACK := platform/saltwall_platform/stack
BIN := $(VENV)/bin
SUITABLE := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c '$(SUITABLE)' 2>/dev/null && echo "$$p" && break; done)
ARGS ?=
TESTS ?=

.DEFAULT_GOAL := help
.PHONY: help up test test-long audit audit-reports audit-false-alarms conformance conformance-strict bench-engine bench-flood bench-trace audit-mutations lint lock clean environment tools

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 27

up: environment ## Install and run everything here; options: make up ARGS="--port 9090"
	@exec $(BIN)/saltwall up $(ARGS)

test: tools lint ## Lint, then run all tests; some of them: make test TESTS=tests/tenants
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder $(TESTS)

test-long: tools ## The property tests for hours, and every attack on the real engine
	@SALTWALL_LONG=1 $(BIN)/python -m pytest --timeout 14400 $(or $(TESTS),tests/engine tests/e2e/test_flood.py)

audit: tools ## Attack the real stack, and stock vLLM beside it, for as long as make test does
	@$(BIN)/python -m pytest tests/e2e/test_audit.py $(ARGS)

audit-reports: environment ## Make the reports in security/reports: make audit-reports ARGS="--budget 15m"
	@$(BIN)/python security/reports/make.py $(ARGS)

audit-false-alarms: tools ## Count the auditor's false alarms beside a busy tenant, in 20 runs
	@PYTHONPATH=tests/support:tests/benchmarks $(BIN)/python tests/security/false_alarms.py $(ARGS)

conformance: tools ## vLLM's own tests with Saltwall forced in: they end as on stock vLLM
	@$(BIN)/python tests/conformance/run.py $(ARGS)

conformance-strict: tools ## The same, with pool and ledger checked after every operation
	@$(BIN)/python tests/conformance/run.py --strict $(ARGS)

bench-engine: tools ## Measure the engine beside stock vLLM: make bench-engine ARGS="--only hash,pool"
	@$(BIN)/python tests/benchmarks/engine $(ARGS)

bench-flood: tools ## Attack a tenant, on the real engine and on stock vLLM: make bench-flood ARGS="--help"
	@PYTHONPATH=tests/support:tests/benchmarks $(BIN)/python -m flood $(ARGS)

bench-trace: tools ## Replay a production trace through the block pool: make bench-trace ARGS="--quick"
	@$(BIN)/python tests/benchmarks/trace $(ARGS)

audit-mutations: tools ## Try many single defects: the auditor must catch each; ARGS="--list" shows them
	@PYTHONPATH=tests/support:tests/benchmarks:tests/mutations/testbuild $(BIN)/python tests/mutations $(ARGS)

lint: tools ## ruff, mypy and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lock: $(BIN)/python ## Resolve the requirement locks anew (reaches the package index)
	@$(BIN)/python -m venv --clear $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --only-binary :all: uv==$(UV)
	@$(VENV)/lock/bin/python -I $(STACK)/lock.py .

clean: ## Remove the environment and caches; .saltwall, with keys and database, stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

environment: $(BIN)/python
	@$(BIN)/python -I $(STACK)/install.py .

tools: $(BIN)/python
	@$(BIN)/python -I $(STACK)/install.py --dev .

$(BIN)/python:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(SUITABLE)' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed; $(or $(PYTHON),python3) is" \
			"$$("$(or $(PYTHON),python3)" --version 2>/dev/null || echo missing)." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) lacks its venv module: apt-get install python3-venv (or your system's" \
			"equivalent), or name another: make PYTHON=/path/to/python3.12" >&2; \
		exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
