# Needs Python 3.11 or newer with pip, and make. Everything else lands in $(VENV).

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
JOBS ?= 2
FRAMES ?= 1000
BENCH ?= fidelity speed scaling output
PAPER ?= patterns toeplitz twenty pipeline runtime digits theory ablation how_it_works
PAPER_ARGS ?=

BIN := $(VENV)/bin
PARALLEL := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test coverage test-slow test-long test-orchestrators test-airflow test-spark test-clusters image lint \
	types docs bench paper fuzz clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed  ## Synthesise the bundled example table and show how close it is
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev  ## Run all tests but the slow ones (more options: PYTEST_ARGS="-x -k progress")
	@$(BIN)/python -m pytest -m "not slow" $(PARALLEL) $(PYTEST_ARGS)

coverage: $(VENV)/.installed-dev  ## Run the tests of `make test` and show the lines that none of them runs
	@$(BIN)/python -m pytest -m "not slow" --cov --cov-report=term $(PARALLEL) $(PYTEST_ARGS)

test-slow: $(VENV)/.installed-dev  ## Run the slow tests: more killed workers, all scripts of the paper, 2,000 columns, the image
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(PYTEST_ARGS)

test-long: $(VENV)/.installed-dev  ## Run the property tests on new random examples, twenty times as many as in `make test`
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m hypothesis --numprocesses $(JOBS) $(PYTEST_ARGS)

test-orchestrators: $(VENV)/.installed-dev  ## Run the tests of Prefect and Dagster (some minutes)
	@$(INSTALL) --editable '.[prefect,dagster]' prefect-dask
	@$(BIN)/python -m pytest tests/orchestrators $(PYTEST_ARGS)

test-airflow: $(VENV)/.installed-dev  ## Run the example DAG with a real Airflow 3, in an environment of its own
	@[ -x $(VENV)-airflow/bin/airflow ] || { $(PYTHON) -m venv $(VENV)-airflow && \
		$(VENV)-airflow/bin/python -m pip install --quiet --disable-pip-version-check '.[airflow,delta]'; }
	@AIRFLOW_PYTHON=$(abspath $(VENV)-airflow)/bin/python $(BIN)/python -m pytest tests/orchestrators/test_airflow.py $(PYTEST_ARGS)

test-spark:  ## Read and write data sets with a real Spark, in an environment of its own (needs Java 17 or newer)
	@[ -x $(VENV)-spark/bin/spark-submit ] || { $(PYTHON) -m venv $(VENV)-spark && \
		$(VENV)-spark/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable . pandas pyspark pytest hypothesis; }
	@$(VENV)-spark/bin/python -m pytest tests/spark $(PYTEST_ARGS)

test-clusters:  ## Run a job over ssh and under Slurm's scripts, and check the manifest for Kubernetes, in an environment of its own
	@[ -d $(VENV)-clusters/lib/*/*/dask_kubernetes ] || { $(PYTHON) -m venv $(VENV)-clusters && \
		$(VENV)-clusters/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable . asyncssh dask-jobqueue jsonschema pytest hypothesis && \
		$(VENV)-clusters/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --constraint constraints.txt dask-kubernetes; }
	@$(VENV)-clusters/bin/python -m pytest tests/deployments $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev  ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/yamllint --strict .yamllint.yaml .pre-commit-config.yaml .github docker mkdocs.yml CITATION.cff
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose*.yaml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint docker/Dockerfile; else echo "hadolint: not built for this platform"; fi

types: $(VENV)/.installed-dev  ## Check types (mypy, strict)
	@$(BIN)/mypy

docs: $(VENV)/.installed-docs  ## Build the guides and the API reference into site/ (no network; warnings are errors)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python .ci/check_site.py site

bench: $(VENV)/.installed-bench  ## Run the benchmarks (one of them: BENCH=speed)
	@set -e; for name in $(BENCH); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

paper: $(VENV)/.installed-paper  ## Run the paper's experiments and renew docs/paper.md (one: PAPER=digits PAPER_ARGS=--full)
	@set -e; for name in $(PAPER); do echo "== $$name"; $(BIN)/python benchmarks/paper/$$name.py $(PAPER_ARGS); done

fuzz: $(VENV)/.installed-dev  ## Fit random tables with random rules and check all laws (another number: FRAMES=100)
	@$(BIN)/python tests/soak/fuzz.py --frames $(FRAMES)

image:  ## Build the container image with buildah (another base, as made by docker/base.sh: BASE=localhost/arf-python)
	@command -v buildah >/dev/null || { echo "buildah is not installed; docker build -f docker/Dockerfile . does the same"; exit 1; }
	@buildah build --format docker --isolation chroot $(if $(BASE),--build-arg BASE=$(BASE)) --tag arf-dask:local --file docker/Dockerfile .

clean:  ## Remove the environment, caches and build results
	@rm -rf $(VENV) build dist site .coverage htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
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

$(VENV)/.installed-dev $(VENV)/.installed-docs $(VENV)/.installed-bench $(VENV)/.installed-paper: $(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing arf_dask with its $* packages ..."
	@$(INSTALL) --editable '.[$*]'
	@touch $@
