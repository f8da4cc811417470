# The verbs of the project. `make` lists them; each sets up what it needs.

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
EXTRAS := --extra simulator --extra soap --extra didcomm --extra nats --extra postgres --extra spark --extra metrics --extra tracing --extra monitor --extra yang

# The first Python that is new enough and can make virtual environments.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# Two more than there are cores: many tests wait for a server, a process or a deadline.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(6, os.cpu_count() + 2))')

# Programs that a test starts, and each process of `make test`, would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test collect long coverage check lint types docs site wheel dist lowest newest bench fuzz properties simulate explore mutations mutants crash chaos outbox pair reloads night pooler logs answers dbt relay wire hostile fmt audit lock clean

help: ## List the verbs
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(READY) ## Show the main job: a provider, a consumer, faults, and the proof that both agree
	$(BIN)/instep demo

# Servers, databases and signals are real, and so is a busy machine: what fails is tried once more,
# and listed as RERUN, which is a fault to look at.
test: $(READY) ## Run the tests in up to six processes (ARGS="-k name" for some)
	$(PYTEST) -m "not long" --numprocesses $(WORKERS) --dist loadgroup --durations 25 \
		--reruns 1 -raR $(ARGS)

collect: $(READY) ## Import all tests, and compile them for those who run them
	$(PYTEST) --collect-only --quiet --quiet > /dev/null

long: $(READY) ## Run the tests that take a minute or more, or try what few changes touch
	$(PYTEST) -m long --timeout 600 $(ARGS)

coverage: $(READY) ## Run the tests, and show what they do not reach; takes twice as long
	$(MAKE) test ARGS="--cov --cov-report=term $(ARGS)"

# What uses one core comes first, two at a time; the tests use all. Each process of `make test`
# imports every test, and would compile it first: half a minute for each.
check: $(READY) ## Prove everything that a change must keep (.ci/run)
	$(MAKE) --jobs 2 lint types docs wheel collect
	$(MAKE) test

lint: $(READY) ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check the types, strictly
	$(BIN)/mypy

docs: $(READY) ## Build the documentation, strictly, into docs/_build/html, and the man page beside it
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env \
		--doctree-dir docs/_build/doctrees docs docs/_build/html
	$(BIN)/sphinx-build --quiet --builder man \
		--doctree-dir docs/_build/doctrees docs docs/_build/man

# Needs Chromium and npm. `npm ci` takes what package-lock.json names by its hashes.
site: docs ## Judge the documentation in Chromium: links, accessibility, phone, offline (ARGS="--pictures build/site/pictures")
	mkdir -p build/site
	cp docs/site_check/* build/site
	npm ci --prefix build/site --ignore-scripts --no-audit --no-fund --silent
	node build/site/check.mjs docs/_build/html build/site/report.json $(ARGS)

wheel: $(READY) ## Build the wheel, install it in a clean environment and use it there
	./.ci/wheel $(abspath $(BIN))/python

dist: $(READY) ## Build wheel and source archive into dist, with the same bytes each time
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --quiet --no-isolation --outdir dist .

lowest: $(READY) ## Run the tests, without Spark's, with the lowest versions that pyproject.toml allows
	$(PIP) uv
	UV=$(BIN)/uv .ci/versions $(PYTHON) lowest --numprocesses $(WORKERS) --reruns 1 $(ARGS)

newest: $(READY) ## The same with the newest (PYTHON=python3.13: of another interpreter)
	$(PIP) uv
	UV=$(BIN)/uv .ci/versions $(PYTHON) newest --numprocesses $(WORKERS) --reruns 1 $(ARGS)

bench: $(READY) ## Measure records/s beside the floors
	$(BIN)/python -m bench $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m bench.landing)
	$(if $(ARGS),,$(BIN)/python -m bench.conformance)
	$(if $(ARGS),,$(BIN)/python -m bench.lake --plot-to build/lake-cost.png)
	$(if $(ARGS),,$(BIN)/python -m bench.lake.steady)
	$(if $(ARGS),,$(BIN)/python -m bench.lake.steady --connect)

fuzz: $(READY) ## Run CASES random cases (1,000,000) over each parser that a stranger reaches
	$(BIN)/python -m tests.fuzz.rounds --cases $(or $(CASES),1000000) $(ARGS)

properties: $(READY) ## Run the property tests for long, with new random examples
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) -m hypothesis --timeout 0 $(ARGS)

simulate: $(READY) ## Run SEEDS seeds of the simulation (300), or SEED alone with its trace
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --trace,--seeds $(or $(SEEDS),300)) $(ARGS)

explore: $(READY) ## Visit STATES states of each machine (1,000,000): every short history (ARGS="--small")
	$(BIN)/python -m tests.explore --states $(or $(STATES),1000000) $(ARGS)

mutations: $(READY) ## Decide wrongly in each function of the table of rules: a test finds it (ARGS="A3 S1")
	$(BIN)/python -m tests.rules $(ARGS)

mutants: $(READY) ## Make COUNT mistakes (800, 0: all) of SEED by a program: explorer or a test finds them
	$(BIN)/python -m tests.mutants --count $(or $(COUNT),800) --seed $(or $(SEED),1) $(ARGS)

crash: $(READY) ## Kill the consumer ROUNDS times (100) on SQLite, then on PostgreSQL
	$(BIN)/python -m tests.crash.rounds --rounds $(or $(ROUNDS),100) $(ARGS)

chaos: $(READY) ## Restart consumers of every kind ROUNDS times (300), under load and hostile input
	$(BIN)/python -m tests.crash.chaos --rounds $(or $(ROUNDS),300) $(ARGS)

outbox: $(READY) ## Kill a writer with an outbox, its relay and a publisher ROUNDS times (100) each, on both databases
	$(BIN)/python -m tests.crash.publishing --rounds $(or $(ROUNDS),100) $(ARGS)

pair: $(READY) ## Kill or stop the active one of two processes ROUNDS times (50)
	$(BIN)/python -m tests.crash.pair --rounds $(or $(ROUNDS),50) $(ARGS)

reloads: $(READY) ## Change the configuration of a running process ROUNDS times (1,000) under a storm
	$(BIN)/python -m tests.crash.reloads --rounds $(or $(ROUNDS),1000) $(ARGS)

night: $(READY) ## Let everything go wrong in a night SCALE times (20) as fast, before a real Prometheus
	$(BIN)/python -m tests.night --scale $(or $(SCALE),20) $(ARGS)

pooler: $(READY) ## Break PostgreSQL behind a pgbouncer, ROUNDS rounds (20) of each fault and mode
	$(BIN)/python -m tests.crash.pooler --rounds $(or $(ROUNDS),20) $(ARGS)

logs: $(READY) ## Run LOGS random logs (500) through the lake, cut in five ways
	$(BIN)/python -m tests.instep_spark.lake.random_logs --logs $(or $(LOGS),500) $(ARGS)

answers: $(READY) ## Ask NETWORKS random networks (300), fifty to a lake, by every engine (ARGS="--without-spark")
	$(BIN)/python -m tests.instep_spark.answers.dbt_kit build/dbt
	$(BIN)/python -m tests.instep_spark.answers --networks $(or $(NETWORKS),300) --dbt build/dbt/bin/dbt $(ARGS)

dbt: $(READY) ## Build the dbt project of a lake of random networks with dbt-duckdb, in build/dbt
	$(BIN)/python -m tests.instep_spark.answers.dbt_kit build/dbt
	DBT=build/dbt/bin/dbt $(PYTEST) tests/instep_spark/answers/test_dbt.py $(ARGS)

relay: $(READY) ## Kill a consumer of reports behind a failing relay for MINUTES minutes (10)
	$(BIN)/python -m tests.crash.sdpi --minutes $(or $(MINUTES),10) $(ARGS)

wire: $(READY) ## Play every rule of the wire laboratory to every source, listener and sink (ARGS="--record")
	$(BIN)/python -m tests.wire --seed $(or $(SEED),1) $(ARGS)

hostile: $(READY) ## Attack a listener beside honest senders for MINUTES minutes (10)
	$(BIN)/python -m tests.hostile --minutes $(or $(MINUTES),10) $(ARGS)

fmt: $(READY) ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

audit: $(READY) ## Look for known faults in what is pinned, list it in build/sbom.json (CycloneDX)
	$(PIP) uv
	mkdir -p build
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) --constraints constraints.txt \
		--universal --generate-hashes --no-emit-index-url --no-header --quiet --output-file build/requirements.txt
	$(BIN)/uvx --from cyclonedx-bom==7.5.0 cyclonedx-py requirements build/requirements.txt \
		--pyproject pyproject.toml --output-reproducible --output-file build/sbom.json
	$(BIN)/uvx pip-audit==2.10.1 --requirement build/requirements.txt --disable-pip --require-hashes --strict

lock: $(READY) ## Pin the newest versions in constraints.txt
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) --group dev \
		--universal --upgrade --generate-hashes --no-emit-index-url --no-header --output-file constraints.txt

clean: ## Remove everything that is made, the virtual environment too
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "instep needs Python 3.11 or newer with venv (Debian: apt install\
	 python3-venv). If it is not on the PATH: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --no-deps --require-hashes -r constraints.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
