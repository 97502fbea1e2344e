# make demo           set up, then take ResNet-50 down the levels on real images
# make test           set up, then lint, types and the quick tests: 8 minutes on 2 cores
# make test-rest      the slow tests
# make test-long      whole networks, and all examples of the tests that draw them
# make test-all       all three
# make test-gpu       what needs an NVIDIA GPU; elsewhere all of it is skipped
# make docs           the documentation as a site in site/; a broken link ends it
# make figures        figures, tables, report pages and screenshots of the docs again, from their stored records
# make wheel          the package as one file in dist/

# What Python compiles is kept, where the environment says otherwise, too: the tests are collected four
# times in .ci/run, and pytest would rewrite their assertions each time.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Most of the time one core imports torch: two tests at a time.
PYTEST := $(BIN)/pytest --numprocesses 2 --dist worksteal --durations 20

.PHONY: demo test test-rest test-long test-all test-gpu lint types docs figures wheel clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,docs]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/golow compare resnet50 --batch 8 --resolution 64

test: lint types
	$(PYTEST) -m "not slow and not whole_network"

test-rest: $(VENV)/.installed
	$(PYTEST) -m "slow and not whole_network"

test-long: $(VENV)/.installed
	$(PYTEST) -m "whole_network or hypothesis" --hypothesis-profile many

# One test at a time: two would share the memory and the clock of one GPU.
test-gpu: $(VENV)/.installed
	$(BIN)/pytest -m gpu --durations 20

# One after the other, even under `make -j`: they would measure on the same cores.
test-all:
	$(MAKE) test
	$(MAKE) test-rest
	$(MAKE) test-long

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# A page of golow report has its record inside.
figures: $(VENV)/.installed
	$(BIN)/python docs/generate_figures.py
	PYTHONPATH=benchmarks $(BIN)/python docs/generate_tables.py
	$(BIN)/python docs/generate_threads_figure.py
	$(BIN)/python docs/generate_report_levental2020.py
	for page in resnet50 lenet5-digits; do \
	  $(BIN)/golow report docs/reports/$$page.html --out docs/reports/$$page.html || exit 1; done
	PYTHONPATH=tests $(BIN)/python docs/generate_screenshots.py

wheel: $(VENV)/.installed
	rm -rf dist
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist site
