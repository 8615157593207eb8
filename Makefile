# One pip call makes the environment; every target is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 2

# An environment that a moved or copied checkout brought along points at the wrong place: it is stale.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(shell rm -f $(STAMP))
endif

.PHONY: demo test lint fmt types bench gpu-check reference clean

$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -c "import sys; sys.exit(sys.prefix != '$(CURDIR)/$(VENV)')" 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@printf '%s' '$(CURDIR)' > $@

demo: $(STAMP)
	@$(BIN)/branchwise demo

test: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/basedpyright

fmt: $(STAMP)
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/branchwise bench best-of-n --peer transformers

gpu-check: $(STAMP)
	@$(BIN)/branchwise bench gpu-check

reference: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m branchwise.evals.reference.train all

clean:
	rm -rf $(VENV) build dist *.egg-info
