# Everything is run from here, by people and by CI alike. Needs Python 3.11 or later, git and make; no root.
# `make` or `make help` lists the targets.

# The first Python that is new enough and can make a virtual environment. Override: make PYTHON=/path/to/python test
# (Version managers put stand-ins for versions they do not have on PATH: hence the trial.)
PYTHON ?= $(firstword $(foreach p,python3.11 python3 python3.12 python3.13 python3.14 python,$(if $(shell $(p) -c \
	"import sys, venv, ensurepip; print(sys.version_info >= (3, 11) or '')" 2>/dev/null | grep True),$(p))))

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed-by-make
# Processes that pytest spreads over, each with a server of its own: one more than two processors, as tests wait a lot.
JOBS ?= 3
# The directory whose files `make demo` takes the checksums of; the standard library of Python unless given.
DIR ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1
# The tests start Python by the hundred: without bytecode each compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
# `make -j` must not mix the output: the order is part of what is promised (pytest's closing line is the last).
.NOTPARALLEL:
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed 's/:.*## /\t/' | expand -t 14

# --- the environment -------------------------------------------------------------------------

# No build isolation: the build backend comes pinned from constraints.txt like everything else.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or later with the venv module was found on PATH" \
		"(on Debian: apt install python3-venv); or say make PYTHON=/path/to/python" >&2; exit 1; }
	@test ! -f $(VENV) || { echo "error: $(VENV) is a file (a redirect to another environment, PEP 832?): it has to be" \
		"a directory here; remove the file" >&2; exit 1; }
	test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	$(PY) -m pip install --quiet --constraint constraints.txt hatchling editables
	$(PY) -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

.PHONY: install
install: $(STAMP) ## make .venv with the pinned versions

.PHONY: constraints
constraints: ## write constraints.txt anew from the newest versions that fit pyproject.toml
	rm -rf build/constraints
	"$(PYTHON)" -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet hatchling editables
	build/constraints/bin/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	grep '^#' constraints.txt > build/constraints/new.txt
	build/constraints/bin/python -m pip freeze --exclude-editable | tr 'A-Z_' 'a-z-' | LC_ALL=C sort >> build/constraints/new.txt
	cp build/constraints/new.txt constraints.txt

# --- what CI runs ----------------------------------------------------------------------------

# In this order, the quick ones first, each named before it starts; pytest ends it, so that its closing line is the last.
.PHONY: test
test: check docs unit ## everything that CI runs (under 10 minutes)

.PHONY: check
check: lint types layers lua ## all checks that run no code of ours

.PHONY: lint
lint: $(STAMP) ## ruff: rules and format
	@echo "== ruff"
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

.PHONY: format
format: $(STAMP) ## ruff: mend what can be mended
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: types
types: $(STAMP) ## mypy, strict
	@echo "== mypy"
	$(PY) -m mypy src tests tools docs/conf.py docs/_ext $(wildcard benchmarks)

.PHONY: layers
layers: $(STAMP) ## import-linter: imports only go down
	@echo "== import-linter"
	$(VENV)/bin/lint-imports

.PHONY: lua
lua: $(STAMP) ## Lua 5.1 syntax of every assembled script; luacheck where present
	@echo "== Lua"
	$(PY) tools/check_lua.py

.PHONY: docs
docs: $(STAMP) ## Sphinx, nitpicky, warnings are errors; the examples in the pages are run
	@echo "== docs"
	$(PY) -m sphinx -E -W --keep-going -n -q -b html -d docs/_build/doctrees docs docs/_build/html
	$(PY) -m sphinx -W --keep-going -q -b doctest -d docs/_build/doctrees docs docs/_build/doctest

.PHONY: unit
unit: $(STAMP) ## pytest alone; ARGS="-k claim -x" are passed on
	@echo "== pytest"
	$(PY) -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

.PHONY: coverage
coverage: $(STAMP) ## pytest with branch coverage; the page is build/coverage/index.html
	rm -f .coverage .coverage.*
	$(PY) -m coverage run -m pytest $(ARGS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage html --quiet --directory build/coverage
	$(PY) -m coverage report

# --- what takes longer -----------------------------------------------------------------------

.PHONY: prove
prove: $(STAMP) ## what takes longer than CI has: all mutants, kill -9, soaks
	HYPOTHESIS_PROFILE=prove $(PY) -m pytest -m prove --timeout 1800 $(ARGS)

.PHONY: bench
bench: $(STAMP) ## benchmarks, beside the ceiling
	$(PY) benchmarks/bench.py $(ARGS)

.PHONY: scale
scale: $(STAMP) ## what grows with the queue: server CPU a job, script times, idle cost
	$(PY) benchmarks/scale.py $(ARGS)

.PHONY: lanes
lanes: $(STAMP) ## what lanes and limits promise: turns, shares, cost by lanes, pick-up, rates
	$(PY) benchmarks/lanes.py $(ARGS)

.PHONY: flows
flows: $(STAMP) ## a parent of 10,000 children beside plain jobs, and a chain from link to link
	$(PY) benchmarks/flows.py $(ARGS)

.PHONY: events
events: $(STAMP) ## what events cost: jobs drained with none, failures and all of them kept, and followed
	$(PY) benchmarks/events.py $(ARGS)

.PHONY: delayed
delayed: $(STAMP) ## a million delayed jobs: enqueue, promote, list, obliterate, while another client pings
	$(PY) benchmarks/delayed.py $(ARGS)

.PHONY: telemetry
telemetry: $(STAMP) ## what each instrument costs a worker and a producer, beside none
	$(PY) benchmarks/telemetry.py $(ARGS)

.PHONY: fairness
fairness: $(STAMP) ## tenants' waiting times under a flood: the plot and the table of docs/how-to/fairness.md
	$(PY) benchmarks/fairness.py $(ARGS)

.PHONY: pictures
pictures: $(STAMP) ## what `echomq top` and `stats` show, from a real run: docs/_static/top.svg and stats.svg
	$(PY) tools/draw_commands.py

.PHONY: demo
demo: $(STAMP) ## checksums of every file under DIR, as jobs, on a private server: make demo DIR=...
	@$(PY) -m echomq.demo $(ARGS) -- $(if $(DIR),"$(DIR)")

.PHONY: clean
clean: ## remove what was made, the environment included
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
