# Set-up, the demo, the tests. `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.locked

.PHONY: setup demo test check bench lock
setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# On a terminal the server stays up afterwards; in a script the demo ends.
demo: setup
	@if [ -t 1 ]; then $(BIN)/podgate demo; else $(BIN)/podgate demo --once; fi

test: setup
	$(BIN)/pytest

check: setup
	$(BIN)/pytest tests/architecture tests/core tests/reviews tests/contract

bench: setup
	$(BIN)/python -m tests.bench

lock:
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock
