# Two commands on a fresh machine: `make demo` and `make test`. Everything else is listed by `make help`.
# Each target installs what it needs once; a second call finds the stamp and goes straight to work.

# The first of these that runs and can make environments, unless PYTHON names one.
PYTHONS := python3.11 python3.12 python3.13 python3
FITS    := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
ifndef PYTHON
PYTHON := $(shell for p in $(PYTHONS); do "$$p" -c '$(FITS)' 2>/dev/null && { echo "$$p"; break; }; done)
endif
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One more than two cores: meters are recorded in real time, and whoever records mostly waits.
WORKERS := 3


.DEFAULT_GOAL := help
.PHONY: help demo test test-quick campaign real-usb mutate lint format docs dist bench bench-check screenshots clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.run-installed  ## bench, replay and probing end to end, on this machine, without hardware
	$(BIN)/joulefleet demo

test: $(VENV)/.dev-installed $(VENV)/.peers-installed  ## all tests, with a time budget per package
	@tests/install-system-parts
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

# The heart of every package, no browser, no Ray, no other people's programs.
QUICK := tests/joulefleet tests/system/test_documents.py tests/system/test_architecture_page.py \
	tests/power/test_energy.py tests/power/test_uncertainty.py tests/power/test_recording.py tests/power/test_profile.py \
	tests/power/test_lvpm_wire.py tests/power/test_lvpm_driver.py tests/device_agents/test_protocol.py tests/device_agents/test_agent_jobs.py \
	tests/traces/test_store.py tests/traces/test_policy.py tests/traces/test_validate.py tests/traces/test_synth.py \
	tests/emulator/test_accounting.py tests/emulator/test_engine.py tests/emulator/test_run.py tests/emulator/test_scenario.py \
	tests/emulator/compare tests/emulator/selectors/test_methods.py tests/harness/test_bench_plan.py tests/harness/test_clock.py \
	tests/harness/test_profile_build.py tests/harness/test_open_run.py tests/harness/test_cli_frame.py tests/harness/test_cli_list.py

test-quick: $(VENV)/.dev-installed  ## the essentials, in about a minute
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(QUICK) $(PYTEST_ARGS)

campaign: $(VENV)/.dev-installed $(VENV)/.peers-installed  ## the full counts; the record goes to docs/results/
	@CI=true tests/install-system-parts
	@CI=true tests/install-system-parts real-usb
	CI=true JOULEFLEET_CAMPAIGN=full $(BIN)/python -m pytest -m campaign --timeout 7200 $(PYTEST_ARGS)

# A guest is built once (some minutes, 1.2 GB outside the tree; docs/emulated-meters.md), then takes under ten minutes.
real-usb: $(VENV)/.dev-installed  ## our drivers on a real Linux kernel in QEMU; the record goes to docs/results/
	@CI=true tests/install-system-parts real-usb
	CI=true JOULEFLEET_CAMPAIGN=full $(BIN)/python -m pytest tests/kernel -m campaign --timeout 2700 $(PYTEST_ARGS)

# Options of the run: MUTATE="--seed 3 --count 300", or --publish for the record.
mutate: $(VENV)/.dev-installed  ## changes the code at random places and asks the tests; can be interrupted
	$(BIN)/python -m tests.mutation $(MUTATE)

lint: $(VENV)/.dev-installed  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev-installed  ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev-installed  ## the documentation site, into build/site; opens without a server or network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

dist: $(VENV)/.dev-installed  ## the wheel and the sdist of this version
	$(BIN)/python -m build --no-isolation --outdir dist

bench: $(VENV)/.dev-installed $(VENV)/.peers-installed  ## all benchmarks, into docs/benchmarks.md; can be interrupted
	@tests/install-system-parts
	JOULEFLEET_BENCH=full $(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks --publish

bench-check: $(VENV)/.dev-installed  ## the last run's ratios against the committed ones: over 20 % worse fails
	$(BIN)/python -m benchmarks --check

screenshots: $(VENV)/.dev-installed  ## the pictures of the documents, each from a real run
	@tests/install-system-parts
	$(BIN)/python docs/screenshots/make.py

clean:  ## remove the environments and caches
	rm -rf .venv .venv-peers* build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c '$(FITS)' 2>/dev/null; then \
		echo "joulefleet needs Python 3.11, 3.12 or 3.13 with venv and pip. Tried: $(or $(PYTHON),$(PYTHONS))."; \
		for p in $(PYTHON) $(PYTHONS); do v=$$("$$p" --version 2>/dev/null) && echo "  $$p is $$v"; done; \
		echo "On Debian and Ubuntu: apt-get install python3 python3-venv. Elsewhere: make PYTHON=/path/to/python3.12 ..."; \
		exit 1; \
	fi
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools wheel
	@touch $@

# What a user installs. Editable, so that the folder you cloned is what runs.
$(VENV)/.run-installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing joulefleet with its extras (2 GB; a minute or more the first time)"
	@start=$$(date +%s); $(PIP) --no-build-isolation -e '.[all]' && echo $$(( $$(date +%s) - start )) > $(VENV)/.install-seconds
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.run-installed
	$(PIP) --group dev
	@touch $@

# Other people's programs, which our emulated instruments, exports and selectors must satisfy. They never enter
# our environment.
PEERS_PIP = bin/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.peers-installed: $(VENV)/.created tests/peers/requirements.txt tests/peers/requirements-tracking.txt \
		examples/flower/requirements.txt
	@echo "installing other people's programs to test against (a few minutes the first time)"
	for name in peers peers-tracking peers-flower; do $(PYTHON) -m venv .venv-$$name; done
	.venv-peers/$(PEERS_PIP) -r tests/peers/requirements.txt
	.venv-peers-tracking/$(PEERS_PIP) -e . -r tests/peers/requirements-tracking.txt
	.venv-peers-flower/$(PEERS_PIP) -e '.[flower]' -r examples/flower/requirements.txt
	@touch $@
