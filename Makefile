PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
# A network that does not answer is given up after a minute or two.
APT := timeout 600 apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30

.PHONY: run test test-engines test-prism test-pythons java chromium lint docs bench clean

run: $(STAMP)
	$(BIN)/thresher sample sample
	$(BIN)/thresher run configs/sample.yaml --output runs/sample
	$(BIN)/thresher run configs/pairs.yaml --sample 0.02 --output runs/pairs

test: lint java chromium
	$(BIN)/python -m pytest

# A part of `make test`: the same graph on real Flink and Spark clusters on loopback, and what happens when parts of them
# are killed.
test-engines: $(STAMP) java
	$(BIN)/python -m pytest tests/engines

# Beam's Prism, built by Go into the user's cache folder; once it is there, `make test-engines` runs on it as well.
test-prism: $(STAMP)
	GOBIN="$$($(BIN)/python -m tests.engines.libraries)" go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0
	$(BIN)/python -m pytest tests/engines/test_same_bytes.py -k prism

# Quick tests and the same manifest on the other Pythons that are found, or on those given as PYTHONS="python3.12 …": each
# gets an environment of 2 GB, which is removed afterwards. Some minutes each; no part of `make test`.
test-pythons: $(STAMP)
	$(BIN)/python -m tests.trust.pythons $(PYTHONS)

# For the tests on Flink and Spark, which are left out where this is not possible.
java:
	@{ command -v javac && command -v mvn; } > /dev/null || \
	{ test "$$(id -u)" = 0 && command -v apt-get > /dev/null && $(APT) update && \
	DEBIAN_FRONTEND=noninteractive $(APT) install --no-install-recommends default-jdk-headless maven > /dev/null; } || \
	echo "Java or Maven is missing (default-jdk-headless, maven): the tests on Flink and Spark are left out"

# For the test that looks at a report as a person would.
chromium:
	@command -v chromium > /dev/null || \
	{ test "$$(id -u)" = 0 && command -v apt-get > /dev/null && $(APT) update && \
	DEBIAN_FRONTEND=noninteractive $(APT) install --no-install-recommends chromium > /dev/null; } || \
	echo "Chromium is missing: the test that opens a report in a browser is left out"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then $(BIN)/mypy; \
	else echo "mypy is left out: the types of the last NumPy for Python 3.10 differ"; fi

docs: $(STAMP)
	$(BIN)/python -m pipelines.reference docs/reference.md

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf $(VENV) build runs/sample runs/pairs sample thresher.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(STAMP): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[models,test]'
	touch $@
