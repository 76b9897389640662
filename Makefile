# make benchmark   play all queries with the oracle and print the score table
# make test        the tests, without the slow ones (all of them: make test ARGS='-m ""')
# make check       style, formatting, types and the floors
# make format      mend what ruff can mend
# make clean       remove everything that was made here, .venv included
#
# Each target installs what it needs once. ARGS goes to the command; PYTHON chooses the interpreter, VENV the place.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
CODE := $(wildcard ticket_gym tests baselines .ci)

.NOTPARALLEL:
.PHONY: benchmark test check format clean
.SECONDARY:

benchmark: $(VENV)/.installed-eval
	$(BIN)/ticket-gym evaluate --agent oracle $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/pytest -n auto -m "not slow" $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed-%: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "ticket_gym needs Python 3.11 or newer, and '$(PYTHON)' is not; name one: make PYTHON=python3.12 ..." >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
