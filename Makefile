# make demo    share out examples/digits.py over two workers, then verify that it is the same
# make test    every test that this machine can run
# make check   lint, format, types, layers
# make docs    the links between the documents
# make clean   remove what was built; keeps .venv (`rm -rf .venv` makes a new one next time)
#
# Each target sets up what it needs, in .venv. PYTHON=python3.12 chooses the interpreter.

PYTHON ?= python3
, := ,
# Every extra that needs no GPU; Spark is of use only where there is Java.
EXTRAS := compare,bench,examples,ray,search,postgres,dev$(if $(shell command -v java),$(,)spark)
BIN := .venv/bin
STAMP := .venv/.stamp
LOG := .venv/install.log
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check docs clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(STAMP)
	$(BIN)/reparto run --workers 2 examples/digits.py --epochs 3
	$(BIN)/reparto verify --workers 2 --steps 20 examples/digits.py --epochs 1

# Tests that measure no time: three at once, since they often wait for processes to start.
test: $(STAMP)
	$(BIN)/python -m pytest -q -n 3 --dist loadgroup -m 'not alone'
	$(BIN)/python -m pytest -q -m alone

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(STAMP)
	$(BIN)/python -m pytest -q tests/architecture/test_links.py

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The build tool is installed first, at the version of constraints.txt, and the build uses it
# where it stands: an isolated build would fetch whichever version is newest. _version.py is
# here because an editable install writes the version down when it is made.
$(STAMP): pyproject.toml constraints.txt src/reparto/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "reparto needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/pip || { echo "reparto: making .venv"; $(PYTHON) -m venv .venv; }
	@echo "reparto: installing into .venv, some minutes the first time (log: $(LOG))"
	@{ $(PIP) setuptools && $(PIP) --no-build-isolation -e '.[$(EXTRAS)]'; } >$(LOG) 2>&1 || { \
	    grep -v '^WARNING: Location' $(LOG) | tail -n 30 >&2; \
	    echo "reparto: the install failed; the whole log is in $(LOG)" >&2; exit 1; }
	@touch $@
