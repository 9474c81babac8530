# `make demo` and `make test` do all set-up themselves, on a fresh machine too; the second run reuses it.
# Another Python:  make test PYTHON=python3.12 VENV=.venv312      A part of the tests:  make test PYTEST_ARGS="-k plan"

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 3

# Always through the interpreter, never through scripts in bin/: their paths break when the folder is moved or copied.
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint golden bench clean

help:
	@echo "make demo    train, kill, resume, compare (DEMO_ARGS=...)"
	@echo "make test    lint, types, golden values, tests (PYTEST_ARGS=..., JOBS=3)"
	@echo "make lint    style and types only"
	@echo "make golden  record the golden values of new cases (GOLDEN_ARGS=...)"
	@echo "make bench   measure (BENCH_ARGS=...)"
	@echo "make clean   remove the environment, builds and caches"

# A changed pyproject.toml or constraints.txt installs again, into the environment that is there.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (minutes, the first time)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,demo,dev]'
	@touch $@

demo: $(STAMP)
	@$(PY) -m detdata demo $(DEMO_ARGS)

# The cheap checks first, pytest last: its summary is the end of the output.
test: lint
	@$(PY) tools/golden.py verify
	@$(PY) -m pytest -n $(JOBS) $(PYTEST_ARGS)

lint: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

golden: $(STAMP)
	@$(PY) tools/golden.py write $(GOLDEN_ARGS)

bench: $(STAMP)
	@$(PY) bench/run.py $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
