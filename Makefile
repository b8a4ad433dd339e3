# Every target makes the virtual environment first, if it is missing or older than the pinned dependencies.
VENV ?= .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
READY := $(VENV)/.installed
# Threads and settings of anything that measures or tests; a run chooses its own by fabric.threads.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 WANDB_MODE=offline

.DEFAULT_GOAL := help
.PHONY: help setup train compare partition plan tune dashboard sync claims report test test-full lint format bench lock clean
# Tables and figures of the papers: how large, by which launcher, which seeds (empty: the experiment's own).
TIER ?= small
LAUNCHER ?= basic
SEEDS ?=
REBUILD := src/rebuild.py --scale $(TIER) --launcher $(LAUNCHER) --seeds "$(SEEDS)"
TARGETS := $(foreach n,1 2 3 4 5 6 7 8 9,table-$(n)) $(foreach n,1 3 5 6 7 8 9 10,figure-$(n)) structure-terms \
  $(foreach n,5 6 7 8 9 10,fedtgp-k$(n)) $(foreach n,2 3 4 5 6,fedproc-t$(n)) fedproc-figures
.PHONY: $(TARGETS)

help: ## list every target with one line
	@awk -F ':.*## ' '/^[a-zN0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make the virtual environment and install the package with its pinned dependencies

$(READY): requirements.lock pyproject.toml
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

train: $(READY) ## the main job: RCSA on Dirichlet-0.5 digits; more words in ARGS="..."
	$(RUN) src/train.py alignment=rcsa partition=dirichlet_0.5 -m $(ARGS)

compare: $(READY) ## five alignments x three seeds, closed by one table
	$(RUN) src/train.py -m experiment=alignments $(ARGS)

partition: $(READY) ## who holds which samples: a table, a picture and the index lists, without training; words in ARGS="..."
	$(RUN) src/partition.py $(ARGS)

$(TARGETS): $(READY)
	$(RUN) $(REBUILD) $@ $(ARGS)

table-N: ## also figure-N, fedtgp-kN, fedproc-tN: rebuild one; TIER=smoke|small|full LAUNCHER= SEEDS=0,1,2
	@echo "one of: $(TARGETS)"

plan: $(READY) ## what a target would cost, measured, before anything starts: TABLE=1 or TARGET=figure-5, and TIER=
	$(RUN) $(REBUILD) --plan $(if $(TARGET),$(TARGET),table-$(TABLE)) $(ARGS)

tune: $(READY) ## weights of each loss, chosen on samples that no table scores: TIER=, LAUNCHER=; ARGS=--write to use them
	$(RUN) src/tune.py --scale $(TIER) --launcher $(LAUNCHER) $(ARGS)

dashboard: $(READY) ## a workspace and a report in W&B: TIER=; ARGS="--dry-run" writes what they would be
	$(RUN) src/dashboard.py --scale $(TIER) $(ARGS)

sync: $(READY) ## upload runs that W&B mirrored offline; what has arrived is not sent again
	$(RUN) src/sync.py $(ARGS)

claims: $(READY) ## docs/claims.md: what recorded runs say about each claim of the papers; TIER= for one scale only
	$(RUN) src/claims.py $(if $(filter file,$(origin TIER)),,--scale $(TIER)) $(ARGS)

report: $(READY) ## report/index.html: claims, tables, figures and runs in one page that needs no network
	$(RUN) src/page.py $(ARGS)

test: $(READY) ## the tests, in minutes; one file or expression in ARGS="..."
	$(TEST_ENV) $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu" $(ARGS)

test-full: $(READY) ## the tests and what takes longer
	$(TEST_ENV) $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(READY) ## ruff: rules and format
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: $(READY) ## let ruff mend what it can
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(READY) ## ratios of a federated round to the bare loop, measured here
	$(RUN) src/bench.py $(ARGS)

lock: $(READY) ## pin what is installed now
	$(RUN) -m pip freeze --exclude-editable --exclude pip --exclude setuptools | grep -viE '^(nvidia-|cuda-|triton)' > requirements.lock

clean: ## remove the virtual environment and caches; run folders stay
	rm -rf $(VENV) .pytest_cache .ruff_cache src/*.egg-info
