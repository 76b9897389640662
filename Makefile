# make benchmark   play all queries with the oracle and print the score table
# make test        the tests, without the slow ones (all of them: make test ARGS='-m ""')
# make test-models the tests that need torch, transformers, TRL and sb3-contrib (a large download)
# make learn       train the small model from nothing, twice, and draw its learning curve (about 45 minutes on one core)
# make check       style, formatting, types and the floors
# make format      mend what ruff can mend
# make clean       remove everything that was made here, .venv included
#
# Each target installs what it needs once. ARGS goes to the command; PYTHON chooses the interpreter, VENV the place.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
MODEL_TESTS := $(patsubst %,tests/test_%.py,transformers_engine training trl train_grpo numeric)
CODE := $(wildcard ticket_gym tests baselines benchmarks .ci)

.NOTPARALLEL:
.PHONY: benchmark test test-models learn check format clean
.SECONDARY:

benchmark: $(VENV)/.installed-eval
	$(BIN)/ticket-gym evaluate --agent oracle $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/pytest -n auto -m "not slow" $(ARGS)

# One thread: these models are so small that several would only wait for each other.
test-models: $(VENV)/.installed-models
	OMP_NUM_THREADS=1 $(BIN)/pytest $(MODEL_TESTS) $(ARGS)

learn: $(VENV)/.installed-models
	OMP_NUM_THREADS=1 $(BIN)/python -m baselines.small_model $(ARGS)

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

# torch comes first: what is asked for alone can be a build without CUDA, what a dependency asks for never is.
$(VENV)/.installed-models: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,train,ppo]'
	@touch $@

$(VENV)/.installed-%: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "ticket_gym needs Python 3.11 or newer, and '$(PYTHON)' is not; name one: make PYTHON=python3.12 ..." >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
