# Two commands do everything on a fresh machine: `make demo` and `make test`. `make proofs` measures every promise.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test proofs setup clean

demo: setup
	$(BIN)/python examples/record_a_team.py

test: setup
	$(BIN)/ruff check podium tests bench examples
	$(BIN)/ruff format --check podium tests bench examples
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --ignore tests/test_proofs.py
	$(BIN)/pytest tests/test_proofs.py

proofs: setup
	$(BIN)/python -m bench.proofs

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml setup.py podium/trace/_scan.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Podium needs Python 3.11 or newer; make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[store,dev,bench]'
	@touch $@

clean:
	rm -rf $(VENV) build out podium/trace/*.so *.egg-info
