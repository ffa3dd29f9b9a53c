# `make demo` and `make test` do all their own set-up: they need Python 3.11 or later and nothing else.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-slow docs clean

help:
	@echo "make demo       see what attention is for: three translators trained side by side, and a report"
	@echo "make test       ruff, mypy, tests, documents, the package"
	@echo "make test-slow  the tests that take minutes"
	@echo "make docs       write the generated pages of docs/ anew"
	@echo "make clean      remove .venv and everything that was built"

.venv/user: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "heedful needs Python 3.11 or later, this is " + sys.version'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --config-settings editable_mode=compat --editable .
	touch $@

.venv/dev: .venv/user
	$(BIN)/pip install --quiet --config-settings editable_mode=compat --editable '.[dev]'
	touch $@

demo: .venv/user
	$(BIN)/heedful demo

test: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: .venv/dev
	$(BIN)/python -m pytest -n 2 -m slow

docs: .venv/dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv demo demo.[0-9]* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
