# make demo   set up, then take ResNet-50 down the levels on real images
# make test   set up, then lint, types and the tests, but for those of whole networks
# make test-all   the same with all tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all lint types clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/golow compare resnet50 --batch 8 --resolution 64

# Most of the time one core imports torch: two tests at a time.
test: lint types
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m "not slow"

test-all: lint types
	$(BIN)/pytest --numprocesses 2 --dist worksteal

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist
