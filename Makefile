# Everything a fresh machine needs comes from here: Python 3.11+, git and make; no root. Plain make 3.81 and sh.
PYTHON ?= python3
UV_VERSION := 0.13.8
BIN := .venv/bin
STAMP := .venv/.synced
UV := VIRTUAL_ENV="$(CURDIR)/.venv" UV_LINK_MODE=copy $(BIN)/uv --quiet
COMPILE := pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate

.PHONY: help demo up test check format docs lock bootstrap clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo '  ARGS="…" is passed on, such as: make demo ARGS="--report report.json"'

demo: $(STAMP) ## a training run that survives preemptions inside its budget
	@$(BIN)/godwit demo $(ARGS)

up: $(STAMP) ## start the service on this machine
	@$(BIN)/godwit up $(ARGS)

test: $(STAMP) ## the tests
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

check: $(STAMP) ## style, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: $(STAMP) ## rewrite the sources in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(STAMP) ## write docs/reference anew from the code
	@$(BIN)/python -m docs.generator

bootstrap: $(STAMP) ## the virtual environment alone

# SkyPilot's pins bind every version, so the lock is made under all extras and then cut to what the tests need.
lock: $(STAMP) ## write requirements.lock anew
	@mkdir -p build
	@$(UV) $(COMPILE) --extra dev --extra skypilot pyproject.toml -o build/all-extras.txt
	@$(UV) $(COMPILE) --generate-hashes --extra dev -c build/all-extras.txt pyproject.toml -o requirements.lock

clean: ## remove the environment, caches and build results
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache test-artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/uv: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "godwit needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments: the modules venv and ensurepip are missing." >&2; \
		echo "On Debian and Ubuntu: sudo apt install python3-venv. Or name another: make PYTHON=… $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@test -x $(BIN)/python || { echo "Making the virtual environment in .venv …"; $(PYTHON) -m venv .venv; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	@touch $@

$(STAMP): $(BIN)/uv requirements.lock pyproject.toml
	@echo "Installing what requirements.lock names …"
	@$(UV) pip sync --require-hashes requirements.lock
	@$(UV) pip install --no-deps -e .
	@touch $@
