# Needs Python 3.11 or newer with pip, and make. Everything else lands in $(VENV).

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
BENCH ?= fidelity speed scaling output

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test lint types bench clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed  ## Synthesise the bundled example table and show how close it is
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev  ## Run the tests, with coverage (more options: PYTEST_ARGS="-x -k progress")
	@$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev  ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/yamllint --strict .yamllint.yaml docker
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/*.yaml
	@if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint docker/Dockerfile; else echo "hadolint: not built for this platform"; fi

types: $(VENV)/.installed-dev  ## Check types (mypy, strict)
	@$(BIN)/mypy

bench: $(VENV)/.installed-bench  ## Run the benchmarks (one of them: BENCH=speed)
	@set -e; for name in $(BENCH); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

clean:  ## Remove the environment, caches and build results
	@rm -rf $(VENV) build dist .coverage htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Some systems ship venv without its bundled pip: then the system's pip puts one in.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --quiet --disable-pip-version-check --python $(BIN)/python install pip; }

# A stamp per set of packages: pip runs again only when what is asked for has changed.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing arf_dask ..."
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev $(VENV)/.installed-bench: $(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing arf_dask with its $* packages ..."
	@$(INSTALL) --editable '.[$*]'
	@touch $@
