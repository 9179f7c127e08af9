PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: run test lint bench clean

run: $(STAMP)
	$(BIN)/thresher sample sample
	$(BIN)/thresher run configs/sample.yaml --output runs/sample
	$(BIN)/thresher report runs/sample

test: lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then $(BIN)/mypy; \
	else echo "mypy is left out: the types of the last NumPy for Python 3.10 differ"; fi

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf $(VENV) build runs/sample sample thresher.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(STAMP): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@
