# A machine with Python 3.11 or newer, make and git needs nothing else.

PYTHON ?= python3
PYTEST_ARGS ?=
# A process a core and one more, at most five: some tests wait. A file's tests stay together, for they share what is
# costly to make. PYTEST_ARGS="-n 0" undoes it.
# Bytecode is written, or each of the many processes that the tests start would compile this program anew.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(os.cpu_count(), 4) + 1)')
IN_PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

BIN := .venv/bin
INSTALLED := .venv/.installed
WITH_TESTS := .venv/.installed-dev
# The build of torch: cuda where there is an NVIDIA driver, else cpu. make install TORCH=cuda decides otherwise.
TORCH ?= $(if $(shell command -v nvidia-smi),cuda,cpu)
# A command line that names another build than the installed one installs everything anew.
ifeq ($(origin TORCH),command line)
OTHER_BUILD := $(filter-out $(TORCH),$(shell cat .venv/.installed 2>/dev/null))
endif
UV := $(shell command -v uv)
ifneq ($(UV),)
VENV = uv venv --seed --quiet --allow-existing --python $(PYTHON) .venv
PIP := uv pip install --python $(BIN)/python -c constraints.txt
TORCH_BUILD = --torch-backend=$(if $(filter cpu,$(TORCH)),cpu,auto)
else
VENV = $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
# Without bytecode, as with uv: it is written as modules are loaded, and that of all takes half of the time.
PIP := $(BIN)/python -m pip install --no-compile --disable-pip-version-check -c constraints.txt
TORCH_BUILD = $(if $(CPU_BUILD),--retries 1 --extra-index-url https://download.pytorch.org/whl/cpu)
endif
# PyPI has builds for CUDA only: +cpu is never taken from there. Everywhere but on Linux there is only one build.
CPU_BUILD := $(if $(filter cpu-Linux,$(TORCH)-$(shell uname)),+cpu)
NO_CPU_BUILD = no build of torch for CPUs was installed; put its wheel into a folder and set PIP_FIND_LINKS=FOLDER, or take PyPI's build for CUDA, about 3 GB: make $(MAKECMDGOALS) TORCH=cuda
SIZE = $(if $(filter cpu,$(TORCH)),about 0.2 GB to download,about 3 GB to download; without a GPU: make install TORCH=cpu)
# A translation below each source.
BELOW = awk 'NR == FNR {source[NR] = $$0; next} {print "  " source[FNR]; print "    " $$0}'
START := $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: anew help install quickstart notebook test test-all soak lint coverage docs gpu-wheels

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | while read -r target text; do printf 'make %-12s%s\n' "$$target" "$$text"; done

install: $(INSTALLED)  ## only .venv, with everything that training, evaluation and translation need
	@echo 'next: source .venv/bin/activate'

quickstart: $(INSTALLED)  ## train on the built-in corpus, score, translate, draw: outputs/quickstart
	@$(BIN)/python train.py experiment=quickstart
	@$(BIN)/aiayn attention outputs/quickstart "$$(head -n 1 examples/phrasebook.en)" > /dev/null
	@$(BIN)/python evaluate.py run=outputs/quickstart
	@echo && echo 'five sentences that it has never seen:'
	@$(BIN)/aiayn translate outputs/quickstart examples/phrasebook.en | $(BELOW) examples/phrasebook.en -
	@echo && echo 'to open, in outputs/quickstart:'
	@echo '  report.html           curves, scores, translations'
	@echo '  attention/index.html  where the model looks, head by head'
	@echo 'next:'
	@echo '  source .venv/bin/activate                 then python and aiayn are those of .venv'
	@echo '  aiayn translate outputs/quickstart        translate sentences that you type'
	@echo 'README.md continues with image captions (minutes), your own text and the paper (12 hours on eight GPUs)'
	@echo "done in $$(( $$(date +%s) - $(START) )) seconds"

notebook: $(INSTALLED)  ## open examples/tour.ipynb, which computes the paper's equations and trains
	@$(BIN)/python -c 'import notebook' 2>/dev/null || $(PIP) --quiet -e '.[notebook]'
	@$(BIN)/python -m notebook examples/tour.ipynb

test: $(WITH_TESTS)  ## run the tests but for slow ones, in minutes; PYTEST_ARGS="-k beam" runs a part of it
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

test-all: $(WITH_TESTS)  ## run every test, examples drawn anew: slow ones, planted bugs, published text where AIAYN_CORPORA names it
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --slow --hypothesis-profile=random $(IN_PARALLEL) $(PYTEST_ARGS)

soak: $(WITH_TESTS)  ## 300 kills at random moments, each compared to the bit with an unbroken run: outputs/soak.json
	@OMP_NUM_THREADS=1 $(BIN)/python tests/faults/soak.py

lint: $(WITH_TESTS)  ## check style, formatting and types
	@$(BIN)/python -c 'import ruff, basedpyright' 2>/dev/null || $(PIP) --quiet -e '.[lint]'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m basedpyright

coverage: $(WITH_TESTS)  ## run the test suite and show which lines of src/aiayn no test runs
	@$(BIN)/python -m coverage erase
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m coverage run -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report

docs: $(INSTALLED)  ## build the site of all pages and of the API: outputs/site
	@$(BIN)/python -c 'import latex2mathml, material, mkdocs, mkdocstrings_handlers.python' 2>/dev/null || $(PIP) --quiet -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo outputs/site/index.html

# Wheels for a machine with a GPU, torch, numpy and no network; for its Python, such as make gpu-wheels GPU_PYTHON=3.12.
GPU_PYTHON ?= 3.12
GPU_PACKAGES = absl-py annotated-doc click colorama contourpy cycler filelock fonttools hydra-core kiwisolver \
  lightning-utilities lxml markdown-it-py matplotlib mdurl omegaconf packaging pillow portalocker protobuf psutil \
  Pygments pyparsing python-dateutil pytorch-lightning PyYAML regex rich sacrebleu sacremoses shellingham \
  tabulate tensorboard tokenizers torchmetrics tqdm typer
# JoeyNMT and what it imports, for benchmarks/cross_check.py.
GPU_PEER = joeynmt==2.3.0 importlib_metadata==8.5.0 mock sentencepiece subword-nmt zipp
WHEELS = outputs/gpu-wheels
gpu-wheels:
	@rm -rf $(WHEELS)
	@$(PYTHON) -m pip download -q --no-deps --only-binary=:all: --python-version $(GPU_PYTHON) \
	  $(foreach n,1 2014 _2_17 _2_27 _2_28,--platform manylinux$(n)_x86_64) -d $(WHEELS) \
	  $(foreach name,$(GPU_PACKAGES),"$$(grep '^$(name)==' constraints.txt)") $(GPU_PEER)
	@$(PYTHON) -m pip wheel -q --no-deps -w $(WHEELS) "$$(grep '^antlr4-python3-runtime==' constraints.txt)"
	@du -sh $(WHEELS)
	@echo 'carry this folder, outputs included, and start there:'
	@echo '  python3 -m pip install -q --no-index --no-deps --target /tmp/site $(WHEELS)/*.whl && PYTHONPATH=/tmp/site:src python3 benchmarks/gpu.py --out OUT  # or gpu_studies.py, cross_check.py'

# torch comes first and alone, by its exact version: a range could fetch gigabytes of another build.
$(INSTALLED): pyproject.toml constraints.txt $(if $(OTHER_BUILD),anew)
	@if [ '$(origin TORCH)' = file ] && command -v sbatch >/dev/null && ! command -v nvidia-smi >/dev/null; then echo 'error: this machine submits SLURM jobs and has no GPU itself: make $(MAKECMDGOALS) TORCH=cuda if jobs train on GPUs, else TORCH=cpu' >&2; exit 1; fi
	@$(if $(OTHER_BUILD),rm -rf .venv,:)
	@command -v $(PYTHON) >/dev/null || { echo 'error: $(PYTHON) not found; install Python 3.11, or make PYTHON=PATH' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit("error: $(PYTHON) is Python %d.%d, 3.11 or newer is needed; make PYTHON=PATH" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(VENV)
	@echo "installing into .venv: $$(grep '^torch==' constraints.txt) for $(TORCH), $(SIZE)"
	@$(PIP) $(TORCH_BUILD) "$$(grep '^torch==' constraints.txt)$(CPU_BUILD)"$(if $(CPU_BUILD), || { echo "error: $(NO_CPU_BUILD)" >&2; exit 1; })
	@echo 'installing into .venv: the other packages for training and translation'
	@$(PIP) -e .
	@echo $(TORCH) > $@

$(WITH_TESTS): $(INSTALLED)
	@echo 'installing into .venv: packages for the tests'
	@$(PIP) -e '.[dev]'
# Once, and not by each of the processes that are started at a time.
	@echo 'compiling the packages that tests load'
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -W ignore -c 'import datasets, hypothesis, wandb, aiayn.evaluation.evaluate, aiayn.training.run'
	@touch $@
