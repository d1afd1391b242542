# Every target sets up what it needs; a second run of the same set-up takes no time.
# ARGS goes to the command behind the target:  make test ARGS="-k claim -x"

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cluster test-frameworks check format bench chaos simulate docs package snapshot pin clean

VENV := .venv/bin/python
ARGS ?=
MATRIX ?= short
export MATRIX

# The first interpreter that is new enough and can make virtual environments; .venv's own comes first because
# it is the fastest to ask. Set PYTHON to choose.
define bootstrap
@for python in $(PYTHON) $(VENV) python3 python3.14 python3.13 python3.12 python3.11; do \
  if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
    exec $$python -m tools.bootstrap $(1); \
  fi; \
done; \
echo "No usable Python found: tasklib needs Python 3.11 or newer with its venv and ensurepip modules." >&2; \
echo "Install one (Debian, Ubuntu: apt install python3-venv) or name it: make PYTHON=/path/to/python3 ..." >&2; \
exit 1
endef

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## create .venv with everything for development
	$(call bootstrap,dev)

demo:  ## run a demo of tasklib on this machine (DEMO_SECONDS=10 stops it after 10 s)
	$(call bootstrap,runtime)
	@$(VENV) -m tasklib demo $(ARGS)

test: setup  ## run all tests; MATRIX=full: in every combination; VERSIONS=all: on every Python and PostgreSQL found
ifeq ($(VERSIONS),all)
	@$(VENV) -m tools.versions $(ARGS)
else
	@$(VENV) -m tools.run_tests $(ARGS)
endif

test-cluster: setup  ## run the tests on real clusters of Dask and Ray, in an environment of their own
	@$(VENV) -m tools.versions.cluster $(ARGS)

test-frameworks: setup  ## run the tests of integrations on every supported version of the frameworks (ARGS="django-6.1")
	@$(VENV) -m tools.frameworks $(ARGS)

# The type checkers take longest and come first; `make check-sql` runs one alone.
CHECKS := types pyright typing interface format lint imports sql sqlplace timing testtime docs generated dashboard
types     := mypy
pyright   := pyright --warnings
typing    := python -m tools.check_typing
interface := python -m tools.check_interface
format    := ruff format --check --quiet .
lint      := ruff check --quiet .
imports   := lint-imports --no-logo
sql       := python -m tools.check_sql
sqlplace  := python -m tools.check_sql_place
timing    := python -m tools.check_timing
testtime  := python -m tools.check_test_time
docs      := python -m tools.check_docs
generated := python -m tools.check_generated
dashboard := python -m tools.dashboard check

check:  ## check format, lint, types, import direction, SQL, docs and generated files
	@$(MAKE) --no-print-directory --keep-going -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(CHECKS:%=check-%) \
	|| { echo "Remedy for check-format, and some of check-lint: make format"; exit 1; }

# mypy then finds in its cache what it has to know of the package.
check-typing: check-types

# `pyright --verifytypes` looks for the package with the first python on the PATH.
.PHONY: $(CHECKS:%=check-%)
$(CHECKS:%=check-%): export PATH := $(CURDIR)/.venv/bin:$(PATH)
$(CHECKS:%=check-%): check-%: setup
	@$($*) && echo "ok $*"

format: setup  ## format the code and apply the safe lint fixes
	@$(VENV) -m ruff check --fix-only --quiet .
	@$(VENV) -m ruff format .

bench: setup  ## measure throughput and latency
	@$(VENV) -m bench $(ARGS)

# How pytest ends if ARGS chooses tests of the other step only. Those that bound time need the machine for themselves.
NONE_CHOSEN := 5
chaos: setup  ## run the long fault-injection tests
	@TEST_WORKERS=$${TEST_WORKERS:-2} $(VENV) -m tools.run_tests -m "chaos and not alone" $(ARGS) || [ $$? = $(NONE_CHOSEN) ]
	@TEST_WORKERS=1 $(VENV) -m tools.run_tests -m "chaos and alone" $(ARGS) || [ $$? = $(NONE_CHOSEN) ]

SEEDS ?= 200
simulate: setup  ## try SEEDS=200 random histories of faults on virtual time; SEED=17 shows one
	@$(VENV) -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

docs: setup  ## build the documentation as a site that needs no network, in site/
	@$(VENV) -m tools.docs_site $(ARGS)

package: setup  ## build wheel and sdist, compare a second build, install them with pip, uv and pipx
	@$(VENV) -m tools.package $(ARGS)

snapshot: setup  ## regenerate the files made from others (schema snapshots)
	@$(VENV) -m tools.check_generated --write

pin: setup  ## move constraints.txt to the newest versions
	@$(VENV) -m tools.pin

clean:  ## remove .venv, caches and builds
	rm -rf .venv .versions dist build site .mypy_cache .pytest_cache .ruff_cache .hypothesis dashboard/node_modules src/tasklib/http/static
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
