# Every target does its own set-up: an empty clone, Python >= 3.11 and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := PYTHONPATH=src $(BIN)/python
# The CPU build of PyTorch is enough for tests; an installed torch of any kind is kept.
TORCH ?= torch==2.13.0

# Folder of piles of pictures for `make piles`: zip archives or folders with one sub-folder per class.
PILES ?= piles
JOBS ?= 1

.PHONY: demo test lint types bench bench-full reproduce beyond family criterion piles render torture clean

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet --editable '.[dev,photos,plot,io,dask,approximate,bench,browser]'
	touch $@

demo: $(VENV)/.core  ## cluster the embedded handwritten digits and write the report
	$(BIN)/tubal demo

test: $(VENV)/.test  ## the whole test suite; what needs a browser or a collection skips with a reason
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev  ## times relative to named peers, under three minutes
	$(BIN)/python -m benchmarks --quick

bench-full: $(VENV)/.dev  ## the full benchmarks
	$(BIN)/python -m benchmarks
	$(BIN)/python -m tools.render

reproduce: $(VENV)/.dev  ## Table 2 of the paper, ten runs per cell
	$(BIN)/tubal reproduce --table 2 --out results
	$(BIN)/python -m tools.render

beyond: $(VENV)/.dev  ## the default preset against its peers, with the ablation
	$(BIN)/tubal reproduce --table beyond --out results
	$(BIN)/python -m tools.render

family: $(VENV)/.dev  ## SC, TenSR, CSC and TubSC, each with and without a graph, with their curves
	$(BIN)/tubal reproduce --table family --sweep --out results
	$(BIN)/python -m tools.render

criterion: $(VENV)/.dev  ## the label-free criterion for the settings of the default preset
	$(BIN)/python -m tools.criterion --out results

piles: $(VENV)/.dev  ## tubal with and without the network, and its peers, on piles of pictures of every kind
	$(BIN)/python -m tools.piles --piles $(PILES) --out results --jobs $(JOBS)
	$(BIN)/python -m tools.render

render: $(VENV)/.dev  ## the pages of results/ and the tables of the README, again from the stored JSON
	$(BIN)/python -m tools.render

torture: $(VENV)/.dev  ## full counts of kills, mutations and generated fits
	$(BIN)/python -m tests.torture

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
