# make demo   the main job on the built-in sample          (core only, no download of models)
# make test   lint, types and tests, every extra installed (what continuous integration runs)
# make test-slow, make bench                               (minutes long)

VENV ?= .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --quiet --disable-pip-version-check
WORKERS ?= 2
TORCH := torch==2.13.0

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint types bench browser clean

help:
	@sed -n 's/^# //p' Makefile

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "stacksl needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": give another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# Stamps: an install is repeated only when pyproject.toml changed.
$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable .
	@touch $@

$(VENV)/.torch: | $(VENV)/bin/python
	$(PIP) install $(TORCH)
	@touch $@

$(VENV)/.extras: pyproject.toml $(VENV)/.torch
	$(PIP) install --editable '.[sentences,minilm,hub,dev]'
	@touch $@ $(VENV)/.core

# The peers of the benchmark have wheels for few platforms: those that do not install are skipped.
$(VENV)/.bench: pyproject.toml $(VENV)/.extras
	@rm -f $(VENV)/.left-out
	@for peer in $$($(RUN) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])'); do \
	  $(PIP) install --prefer-binary "$$peer" 2>$(VENV)/.peer.log \
	  || { echo "the benchmark's peer $$peer (it does not install here)" >> $(VENV)/.left-out; }; \
	done
	@touch $@

demo: $(VENV)/.core
	@$(VENV)/bin/stacksl run $(DEMO_FLAGS)

lint: $(VENV)/.extras
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

types: $(VENV)/.extras
	@$(RUN) -m mypy

browser:
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || true; \
	fi

test: $(VENV)/.extras $(VENV)/.bench browser lint types
	@$(RUN) -m pytest -n $(WORKERS) -m "not slow"
	@echo "left out:"
	@echo "  $$($(RUN) -m pytest -m slow --collect-only -q | grep -c '::') slow tests (make test-slow)"
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	  || echo "  the report in a real browser (no Chromium here; as root, make test installs it)"
	@if [ -f $(VENV)/.left-out ]; then sed 's/^/  /' $(VENV)/.left-out; fi

test-slow: $(VENV)/.extras browser
	@$(RUN) -m pytest -m slow --durations=10

bench: $(VENV)/.bench
	@$(RUN) -m benchmarks

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
