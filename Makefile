# The recipes. Each one makes .venv by itself; nothing but Python 3.11+, Java 17+ and make is needed.
#
#   make demo     a local cluster, a skewed load, the whole loop, one HTML report
#   make test     everything that CI checks
#   make lint     style, types, import contracts
#   make docs     docs/reference, generated from the code
#   make bench    every benchmark; refreshes docs/benchmarks.md
#   make clean    removes .venv and caches of the tools; fetched jars stay in the user's cache folder
#
# Another Python: make test PYTHON=python3.12

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL_LOG := $(VENV)/install.log

PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
OLDEST_JAVA := 17

# Fast tests first. The slow ones mostly wait, so three processes run side by side; each has its own
# cluster and Spark session. The longest come first (tests/conftest.py), so they run one after
# another in the first process, and what the others take over at the end is short. Those that fail
# run once more, alone: a crowded machine may starve them. What fails twice is final.
FAST := src tests/architecture tests/unit tests/laws tests/papers tests/docs
REAL := tests/spark tests/kafka
PYTEST := $(BIN)/python -m pytest --durations=10
AGAIN := --last-failed --last-failed-no-failures=none

# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes,
# and each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint docs bench clean java

help:
	@sed -n 's/^#   make /  make /p' Makefile

demo: $(READY) java
	@$(BIN)/trimtab demo

test: lint java
	$(PYTEST) --maxfail=10 --numprocesses=auto --maxprocesses=4 --dist=worksteal $(FAST)
	$(PYTEST) --numprocesses=3 --dist=worksteal $(REAL) || { \
	  echo "Failed beside others, now once more alone:" && $(PYTEST) $(AGAIN) $(REAL); }

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(READY)
	$(BIN)/python -m trimtab.cli.reference docs/reference

bench: $(READY) java
	$(BIN)/trimtab bench --all

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +

# A marker that is written last, so that an interrupted install is done again.
$(READY): pyproject.toml constraints.txt setup.py src/trimtab/apply/consumers/keda/externalscaler.proto
	@python=""; \
	for name in $(PYTHONS); do \
	  if command -v "$$name" >/dev/null && \
	     "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python="$$name"; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "error: Python 3.11 or newer is needed; none was found as: $(PYTHONS)" >&2; \
	  echo "hint: install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "Making $(VENV) with $$("$$python" --version)"; \
	  rm -rf $(VENV); \
	  if ! "$$python" -m venv $(VENV); then \
	    rm -rf $(VENV); \
	    echo "error: $$python could not make a virtual environment." >&2; \
	    echo "hint: Debian and Ubuntu keep that part apart: apt-get install python3-venv" >&2; \
	    exit 1; \
	  fi; \
	fi
	@echo "Installing Trimtab and what it needs into $(VENV); the first time this fetches about 600 MB"
	@rm -f $(INSTALL_LOG)
	@if ! $(BIN)/python -m pip install --disable-pip-version-check --log $(INSTALL_LOG) \
	    -c constraints.txt -e '.[dev]'; then \
	  wanted=$$(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' $(INSTALL_LOG) | tail -n 1); \
	  if [ -z "$$wanted" ]; then \
	    wanted=$$(sed -n 's/.* Collecting \([^ ]*\).*/\1/p' $(INSTALL_LOG) | tail -n 1); \
	  fi; \
	  echo "error: the install failed; the package it wanted was: $${wanted:-unknown}" >&2; \
	  echo "hint: check the network and run make again. Everything pip said: $(INSTALL_LOG)" >&2; \
	  exit 1; \
	fi
	@touch $@

java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1 || true); \
	if [ -z "$$version" ] || [ "$$version" -lt $(OLDEST_JAVA) ]; then \
	  echo "error: Kafka and Spark need Java $(OLDEST_JAVA) or newer; here is $${version:-none}." >&2; \
	  echo "hint: Debian, Ubuntu: apt-get install openjdk-$(OLDEST_JAVA)-jre-headless; macOS: brew install openjdk@$(OLDEST_JAVA); then put it on the PATH." >&2; \
	  exit 1; \
	fi
