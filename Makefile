# Two commands on a fresh machine: `make demo` and `make test`. Everything else is listed by `make help`.
# Each target installs what it needs once; a second call finds the stamp and goes straight to work.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt


.DEFAULT_GOAL := help
.PHONY: help demo test campaign lint format bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.run-installed  ## the whole tool end to end, on this machine, without hardware
	$(BIN)/fedjoule demo

test: $(VENV)/.dev-installed $(VENV)/.peers-installed  ## all tests, with a time budget per package
	@tests/install-system-parts
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

campaign: $(VENV)/.dev-installed $(VENV)/.peers-installed  ## the full counts; the record goes to docs/results/
	@CI=true tests/install-system-parts
	CI=true FEDJOULE_CAMPAIGN=full $(BIN)/python -m pytest -m campaign --timeout 7200 $(PYTEST_ARGS)

lint: $(VENV)/.dev-installed  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev-installed  ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev-installed $(VENV)/.peers-installed  ## benchmarks: ratios measured in one run
	$(BIN)/python -m benchmarks

clean:  ## remove the environments and caches
	rm -rf .venv .venv-peers .venv-peers-fl build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools wheel
	@touch $@

# What a user installs. Editable, so that the folder you cloned is what runs.
$(VENV)/.run-installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing fedjoule with its extras (about two minutes the first time)"
	@start=$$(date +%s); $(PIP) --no-build-isolation -e '.[all]' && echo $$(( $$(date +%s) - start )) > $(VENV)/.install-seconds
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.run-installed
	$(PIP) --group dev
	@touch $@

# Other people's clients, which our emulated instruments must satisfy. They never enter our environment.
$(VENV)/.peers-installed: $(VENV)/.created tests/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r tests/peers/requirements.txt
	@touch $@
