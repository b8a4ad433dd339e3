# Every target makes the virtual environment first, if it is missing or older than the pinned dependencies.
# An installed torch that pyproject.toml allows stays as it is, in the environment or, when that is made, in PYTHON.
VENV ?= .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check
READY := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
TORCH := $(shell sed -nE 's/^ *("torch(vision)?[<>=].*"),$$/\1/p' pyproject.toml)
HAS_TORCH := -m pip install --dry-run --report /dev/null --no-index --no-deps $(TORCH) >/dev/null 2>&1
# Threads and settings of anything that measures or tests; a run chooses its own by fabric.threads.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 WANDB_MODE=offline

.DEFAULT_GOAL := help
.PHONY: help setup train compare partition plan tune dashboard sync claims report test test-full coverage lint format docs bench \
  lock clean
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
	test -x $(RUN) || $(PYTHON) -m venv $$($(PYTHON) $(HAS_TORCH) && echo --system-site-packages) $(VENV)
	if $(RUN) $(HAS_TORCH); then grep -vE '^torch(vision)?==' $<; else cat $<; fi > $(VENV)/pins.txt
	$(PIP) --requirement $(VENV)/pins.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(DEV): requirements-dev.lock $(READY)
	$(PIP) --requirement $(VENV)/pins.txt --requirement $<
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

test: $(DEV) ## the tests, in minutes; one file or expression in ARGS="..."
	$(TEST_ENV) $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu" $(ARGS)

test-full: $(DEV) ## the tests and what takes longer
	$(TEST_ENV) $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

coverage: $(DEV) ## the tests, and which lines of the package they ran; one file or expression in ARGS="..."
	$(TEST_ENV) $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu" \
	  --cov --cov-report=term:skip-covered --cov-report=html:report/coverage $(ARGS)

lint: $(DEV) ## ruff: rules and format; mypy: types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(DEV) ## let ruff mend what it can
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

docs: $(DEV) ## site/index.html: guide, a page per method, reference; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

bench: $(READY) ## ratios of a federated round to the bare loop, measured here
	$(RUN) src/bench.py $(ARGS)

# What torch brings for one kind of GPU is not pinned: a CPU-only torch has none of it.
COMPILE = $(RUN) -m uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header $(ARGS) pyproject.toml
lock: $(DEV) ## pin what pyproject.toml asks for, what runs apart from what develops; ARGS=--upgrade for newer versions
	cat requirements.lock requirements-dev.lock > $(VENV)/all.lock
	$(COMPILE) --extra dashboard --extra sweep --extra text --output-file requirements.lock
	$(COMPILE) --all-extras --constraint requirements.lock --output-file $(VENV)/all.lock
	sed -i -E '/^(nvidia-|cuda-|triton)/d' requirements.lock $(VENV)/all.lock
	grep -vxFf requirements.lock $(VENV)/all.lock > requirements-dev.lock

clean: ## remove the virtual environment and caches; run folders stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache site src/*.egg-info
