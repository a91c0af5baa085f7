# Two commands do everything on a fresh machine: `make demo` and `make test`. `make proofs` measures every promise. `make doors` tests what needs
# a server from elsewhere or a clean install, and `make test-kernels` the learning tests by another BLAS kernel than the machine's own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-kernels doors proofs setup lm mcp browser bubblewrap trainers clients clean

demo: setup
	$(BIN)/python examples/learn_the_five.py

# Each process multiplies matrices by one thread: there are as many processes as cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
LEARNING := $(wildcard tests/learn/test_*.py) tests/experiments/test_counterfactual.py

test: setup lm
	$(BIN)/ruff check podium experiments tests bench examples
	$(BIN)/ruff format --check podium experiments tests bench examples
	$(BIN)/mypy
	$(ONE_THREAD) $(BIN)/pytest -n 2 --dist worksteal

test-kernels: setup lm
	@kernel=$$($(BIN)/python tests/kernels.py) || { echo "test-kernels: skipped, $$kernel"; exit 0; }; \
	echo "the learning tests by OpenBLAS' kernel $$kernel"; \
	$(ONE_THREAD) OPENBLAS_CORETYPE=$$kernel $(BIN)/pytest -n 2 --dist worksteal $(LEARNING)

doors: setup lm mcp clients browser bubblewrap
	$(BIN)/pytest -rs tests/doors tests/harness/test_mcp.py $(addprefix tests/harness/test_,sandbox.py permissions.py escapes.py doors_replay.py)

proofs: setup lm mcp browser
	$(BIN)/python -m bench.proofs

setup: $(VENV)/installed

# torch and transformers, which the demo does without.
lm: $(VENV)/lm

$(VENV)/lm: constraints.txt $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lm]'
	@touch $@

# Other people's trainers, each in an environment of its own in .trainers: what our plug-ins are tried in (docs/trainers.md).
trainers: lm
	$(BIN)/python -m bench.trainers

# What confines the commands of agents. Where it cannot be installed, its tests say so and are skipped.
bubblewrap:
	@command -v bwrap > /dev/null || apt-get install -y -qq bubblewrap > /dev/null 2>&1 || echo "doors: bubblewrap is not here and cannot be installed: apt-get install bubblewrap"

# MCP servers from npm and PyPI, to test the client on, in `make doors`. Where they cannot be had, those tests say so and are skipped.
mcp: $(VENV)/mcp/tried

$(VENV)/mcp/tried: | $(VENV)/installed
	@mkdir -p $(VENV)/mcp
	-@npm install --silent --no-audit --no-fund --fetch-retries=0 --prefix $(VENV)/mcp @modelcontextprotocol/server-everything@2026.8.31
	-@$(PYTHON) -m venv $(VENV)/mcp/py && $(VENV)/mcp/py/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 'mcp-server-time==2026.*'
	@touch $@

# Real clients of the gateway, pinned, in an environment of their own; chat templates of real models, as TRL has them.
clients: $(VENV)/clients/tried

$(VENV)/clients/tried: | $(VENV)/installed
	-@$(PYTHON) -m venv $(VENV)/clients && $(VENV)/clients/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 openai==3.51.0 anthropic==2.10.0 openai-agents==0.24.0 langgraph==1.2.22 langchain-openai==1.7.3
	-@$(VENV)/clients/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 --no-deps trl==1.16.0
	@touch $@

# A browser for the tests of the page: Debian's Chromium, driven by playwright, with axe-core to judge how well it can be read.
browser: $(VENV)/axe/tried

$(VENV)/axe/tried: | $(VENV)/installed
	@mkdir -p $(VENV)/axe
	-@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; }
	-@$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 -e '.[browser]'
	-@npm install --silent --no-audit --no-fund --fetch-retries=0 --prefix $(VENV)/axe axe-core@4
	@touch $@

$(VENV)/installed: pyproject.toml setup.py podium/trace/_scan.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Podium needs Python 3.11 or newer; make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[store,serve,dev,bench]'
	@touch $@

clean:
	rm -rf $(VENV) build out podium/trace/*.so *.egg-info
