# On a bare machine with Python and make: `make demo` ends with the path of a page to open, `make test` passes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PAGE ?= build/demo
# What the tests need of the extra [vision], pinned to torch 2.13 and without dependencies: both ask for a torch of
# their own, which would replace a CPU build by gigabytes of CUDA packages. What timm needs besides comes with [hf].
VISION ?= timm==1.0.31 torchvision==0.28.0

.PHONY: demo test lint types check gpu clean

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
	$(BIN)/pip install --quiet --editable ".[dev,hf]"
	$(BIN)/pip install --quiet --no-deps $(VISION)
	touch $@

# On a machine with a GPU, whose PYTHON has torch, triton and timm; it installs nothing, and goes on where a part fails.
# In a copy without git history: make gpu TESSELLA_COMMIT=...
GPU_TESTS = $(shell grep -l "mark.gpu" tests/test_*.py)
gpu:
	@$(PYTHON) -c "import torch; raise SystemExit(None if torch.cuda.is_available() else 'make gpu: $(PYTHON) sees no CUDA device')"
	mkdir -p results/gpu
	-PYTHONPATH=src:tests $(PYTHON) -m pytest -o addopts= -q -W default -m gpu --continue-on-collection-errors \
	  -p device_outcome --outcome results/gpu/tests.json $(GPU_TESTS)
	-for bench in attention training descent masked inspect; do \
	  PYTHONPATH=src $(PYTHON) -m tessella bench $$bench --device cuda --json results/bench-$$bench-gpu.json; done

clean:
	rm -rf $(VENV) build
