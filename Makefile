# make app        set up and start the app with its demo library
# make test       set up, then lint, types and tests
# make app-check  start the app, ask the demo questions through it, stop
# make test-all   the long suites (make test runs the others)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: app test app-check test-all lint types clean

app: $(VENV)/.app
	$(BIN)/vilco app --demo

test: $(VENV)/.dev lint types
	$(BIN)/python -m pytest -rs

app-check: $(VENV)/.app
	$(BIN)/python -m vilco_app.ui.check

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -rs -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "vilco needs Python 3.11 to 3.13; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: pyproject.toml | $(BIN)/python
	@echo "installing vilco and what it needs into $(VENV): minutes the first time, up to 6.5 GB"
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing vilco, what it needs and the test tools into $(VENV): minutes the first time, up to 6.5 GB"
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.app

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
