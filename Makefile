# Two commands do everything on a fresh machine: `make demo` and `make test`. `make proofs` measures every promise.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test proofs setup lm mcp clean

demo: setup
	$(BIN)/python examples/learn_the_five.py

test: setup lm mcp
	$(BIN)/ruff check podium tests bench examples
	$(BIN)/ruff format --check podium tests bench examples
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --ignore tests/test_proofs.py
	$(BIN)/pytest tests/test_proofs.py

proofs: setup lm mcp
	$(BIN)/python -m bench.proofs

setup: $(VENV)/installed

# torch and transformers, which the demo does without.
lm: $(VENV)/lm

$(VENV)/lm: constraints.txt $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lm]'
	@touch $@

# MCP servers from npm and PyPI, to test the client on. Where they cannot be had, those tests say so and are skipped.
mcp: $(VENV)/mcp/tried

$(VENV)/mcp/tried: | $(VENV)/installed
	@mkdir -p $(VENV)/mcp
	-@npm install --silent --no-audit --no-fund --fetch-retries=0 --prefix $(VENV)/mcp @modelcontextprotocol/server-everything@2026.8.31
	-@$(PYTHON) -m venv $(VENV)/mcp/py && $(VENV)/mcp/py/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 'mcp-server-time==2026.*'
	@touch $@

$(VENV)/installed: pyproject.toml setup.py podium/trace/_scan.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Podium needs Python 3.11 or newer; make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[store,serve,dev,bench]'
	@touch $@

clean:
	rm -rf $(VENV) build out podium/trace/*.so *.egg-info
