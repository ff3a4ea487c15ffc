# On a bare machine with Python and make: `make demo` ends with the path of a page to open, `make test` passes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PAGE ?= build/demo

.PHONY: demo test lint types check clean

demo: $(VENV)/.installed
	$(BIN)/tessella verify thm4.2 fig1b fig3 fig4 --seeds 5 --page $(PAGE)

test: lint types check

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

check: $(VENV)/.installed-dev
	$(BIN)/pytest

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build
