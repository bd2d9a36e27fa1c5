# Two commands matter: `make demo` shows the system at work, `make test` checks all of it.
# Both do their own set-up. Needed beforehand: Python 3.11 or later, git, make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BARE   := $(VENV)/.bare
PIP    := $(BIN)/python -m pip --disable-pip-version-check
TORCH  := $(shell grep '^torch==' constraints.txt)

MINUTES ?= 10

CHECKS := .pytest_cache/checks.log
FOUND  := .pytest_cache/found.log

# Tests of real processes wait now and then; types and rules take what is idle then.
define all
mkdir -p $(dir $(CHECKS)); \
nice -n 19 $(MAKE) --no-print-directory -k types rules > $(CHECKS) 2>&1 & checks=$$!; \
$(BIN)/python -m pytest -n 2 --dist worksteal $(1) $(2); code=$$?; \
wait $$checks || code=1; cat $(CHECKS); rm -f $(CHECKS); exit $$code
endef

# One thread per process: several test workers share the cores, and training is deterministic.
test test-long fuzz mutants: export OMP_NUM_THREADS := 1

# Hundreds of processes import the same files: bytecode is kept, whatever the shell says.
lint style test test-long: export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo docs lint style types rules found package test test-long fuzz mutants bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP) ## create .venv with the pinned versions (again only when a pin changes)

# torch comes first and alone: once it is there, nothing that follows asks for a larger build of it.
# pip compiles on one core; some packages hold files of other Pythons, which cannot be compiled.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Secure-FGL needs Python 3.11 or later; $(PYTHON) is older or missing." >&2; \
	  echo "Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --no-compile -c constraints.txt $(TORCH)
	$(PIP) install --no-compile -c constraints.txt -e $(1)
endef

$(STAMP): pyproject.toml constraints.txt
	$(call environment,'.[test]')
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

# Without tests: half of the packages, and what is imported is compiled then. scikit-learn is what
# the demo is compared with.
$(BARE): pyproject.toml constraints.txt
	$(call environment,'.[evaluate]')
	@touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(BARE)) ## six synthetic lenders train together under homomorphic encryption
	$(BIN)/secure-fgl run examples/lenders.yaml

docs: setup ## the documentation as a site, with strict links, in build/site
	$(PIP) install --no-compile -c constraints.txt -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict --clean

# mypy takes one core half a minute; the rest goes on beside it.
lint: style ## style, types, which floor may import what, and that all tests can be imported
	@$(MAKE) --no-print-directory -j 2 types rules found

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

rules:
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.house_rules

found:
	@mkdir -p $(dir $(FOUND)); \
	$(BIN)/python -m pytest --collect-only -qq > $(FOUND) 2>&1 || { cat $(FOUND); exit 1; }

package: setup ## build sdist and wheel, install the wheel into a fresh environment, use it
	$(BIN)/python -m scripts.package

test: style ## style, then every test but the long ones, and the rest of lint beside them
	@$(call all,-m "not long",)

test-long: style ## likewise every test, with the full matrix, soaks and many more random examples
	@$(call all,,--hypothesis-profile=long)

fuzz: setup ## hostile bytes to every native loader, fresh seeds; MINUTES=10
	$(BIN)/python -m tests.laws.fuzzing --minutes $(MINUTES)

mutants: setup ## plant faults; each must be found by a test (some minutes)
	$(BIN)/python -m scripts.mutants

bench: setup ## measure; prints ratios taken within one run, asserts nothing (some minutes)
	@echo "== benchmarks/aggregation.py"; $(BIN)/python benchmarks/aggregation.py --bare
	@for script in benchmarks/bench_*.py; do \
	  test -e "$$script" || { echo "There are no benchmarks yet."; break; }; \
	  echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean: ## remove caches and build output; keeps .venv and runs/
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
