# Sets hubbub up in .venv and runs it. Needs make, and Python 3.11 or newer with venv.
#
#   make demo    install hubbub and run the four-hospital study
#   make demo-network   the same among processes: four hospitals and two compute nodes over NATS
#   make test    install the developer's tools too, then lint the code and run the quick tests
#   make test-all   the same with the slow tests
#   make nightly   what takes longest: kills, long calibrations, databases, every kind of question among
#                  machines, the other language, fuzzing, and the quick tests on Python 3.12 and 3.13
#   make coverage   the quick tests again: which branches of the three rooms that guarantees rest on none takes
#   make mutants   make each listed constant of the guarantee wrong, and see a test fail
#   make core    run the core's quick tests in an empty folder, with nothing else of hubbub beside it
#   make flower   run the study of examples/flower in Flower itself, in an environment of its own
#   make amputate   delete each capability in turn, and count the files that break
#   make check   formatting, lint, layers and types, without tests
#   make r       check the R package in r/ and run its tests; needs R (docs/howto/r.md)
#   make docs    make these pages a site in docs/_build/html, with a search
#   make pdf     statements, proofs, protocol and threat model as docs/_build/hubbub-statements.pdf
#   make bench   measure this machine against its physical limits
#   make gallery   make the pictures of docs/gallery.md again (BROWSER=chromium photographs pages)
#   make experiments   make every figure of docs/experiments.md again (hours; goes on where it stopped)
#   make release   wheel, sdist, SBOM, SHA256SUMS and provenance of the last commit in dist/, built twice and
#                  compared; RELEASE_KEY=key.pem signs the provenance
#   make bundle   the release and all packages that it needs in one file, for machines without a network
#   make image   the image of a party from that, with no registry (root); NODE=--node leaves torch out
#   make check-deploy   have compose files and chart read by their own programs; needs PYTHON=python3.12 or newer
#   make lock    write constraints.txt and deploy/requirements.txt anew; ARGS=--upgrade for newer versions
#   make clean   remove .venv and all that the tools left behind
#
# PYTHON=python3.12 picks another interpreter; ARGS="..." is handed to hubbub or to pytest, where
# ARGS="-n 0 tests/core/planning/test_plan.py" runs one file in one process.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin

# Errors still show at this level; pip's own settings (PIP_* variables, pip.conf) are honoured.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

# A process for each core, of half a gigabyte. Each begins with its own part of the files and
# steals from another's end, so that what a file makes once is seldom made twice. Bytecode is
# written whatever the environment says: the tests start hubbub and read their own files often.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

SAY := @echo "hubbub:"

# The stamps: an environment exists, holds what `hubbub demo` needs, what a network needs, what the
# tests need, what the pages need.
CREATED := $(VENV)/.created
RUNTIME := $(VENV)/.installed-runtime
ENGINE := $(VENV)/.installed-engine
TOOLS := $(VENV)/.installed-tools
PAGES := $(VENV)/.installed-pages
PDF := $(VENV)/.installed-pdf
RELEASE := $(VENV)/.installed-release
FLOWER := $(VENV)-flower/.installed
STRANGER := tests/other_language/node_modules/.package-lock.json

# One version of each package for all Pythons and systems. What torch's build for GPUs needs is left
# out: it names those versions itself, and the build for CPUs needs none of them.
COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --no-config \
  --universal --python-version 3.11 --fork-strategy fewest --prerelease explicit --no-annotate \
  $(addprefix --no-emit-package ,triton cuda-bindings cuda-pathfinder cuda-toolkit \
    $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand \
      cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx))

# Extras that are left out of the locks: what they need wants other versions than the rest.
UNLOCKED := flower mlflow tensorboard
LOCKED = $(filter-out $(UNLOCKED),$(shell sed -n \
  '/^\[project.optional-dependencies\]/,/^\[project.scripts\]/s/^\([a-z]*\) = .*/\1/p' pyproject.toml))

.PHONY: help demo demo-network test test-all nightly mutants core flower amputate coverage check lint docs pdf bench gallery experiments release bundle image check-deploy lock clean r
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

demo: $(RUNTIME)
	$(SAY) running the demo
	@$(BIN)/hubbub demo $(ARGS)

demo-network: $(ENGINE)
	$(SAY) running the demo among processes
	@$(BIN)/hubbub demo --network $(ARGS)

# Five processes, by rooms: each collects and compiles its own alone, and no worker's word about
# each test goes through another. With arguments, pytest gets those alone.
APART := tests/site tests/learning tests/estimation
QUICK := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 0 -q -m "not slow"

ifeq ($(ARGS),)
test: lint
	$(SAY) running the tests of the core alone, and those of other rooms beside them
	@logs=$$(mktemp -d); each=; \
	  { $(BIN)/python tests/house/amputate.py && $(BIN)/python tests/house/core.py -n 0; } \
	    > $$logs/core 2>&1 & each="$$each $$!"; \
	  $(QUICK) tests/learning > $$logs/learning 2>&1 & each="$$each $$!"; \
	  $(QUICK) $(APART:%=--ignore=%) $$($(BIN)/python tests/house/core.py --list | sed 's/^/--ignore=/') \
	    > $$logs/others 2>&1 & each="$$each $$!"; \
	  $(QUICK) tests/estimation > $$logs/estimation 2>&1 & each="$$each $$!"; \
	  trap "kill $$each" INT; $(QUICK) tests/site; end=$$?; \
	  for one in $$each; do wait $$one || end=1; done; cat $$logs/*; rm -r $$logs; exit $$end
else
test: lint
	@$(PYTEST) -m "not slow" $(ARGS)
endif

test-all: check $(STRANGER)
	$(SAY) running all tests
	@$(PYTEST) -m "not nightly" $(ARGS)

FUZZED := wire rounds agreement joint mixing collection offers study ledger

nightly: lint $(STRANGER)
	$(SAY) running what takes longest
	@$(PYTEST) -m "nightly or hypothesis" --hypothesis-profile=thorough $(ARGS)
	@if $(BIN)/python -c "import atheris" 2> /dev/null; then \
	  for target in $(FUZZED); do $(BIN)/python -m fuzz $$target --seconds 60 || exit 1; done; \
	else echo "hubbub: expected atheris (pip install atheris); nothing was fuzzed" >&2; fi
	@for python in python3.12 python3.13; do \
	  if $$python -c "" 2> /dev/null; then $(MAKE) test PYTHON=$$python VENV=.venv-$$python || exit 1; \
	  else echo "hubbub: expected $$python; the quick tests did NOT run on it" >&2; fi; done

mutants: $(TOOLS)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python tests/mutants/run.py $(ARGS)

core: $(TOOLS)
	@$(BIN)/python tests/house/core.py -n auto --maxprocesses 8 $(ARGS)

flower: $(FLOWER)
	$(SAY) running a study in Flower "(some minutes: it starts a process for each message)"
	@$(VENV)-flower/bin/python -m pytest -n 0 tests/flower $(ARGS)

amputate: $(TOOLS)
	@$(BIN)/python tests/house/amputate.py $(ARGS)

# What falls below is told and fails nothing: what no test takes is to be read, not to be counted.
ROOMS := protocol privacy ledger
EXPECTED := 95

coverage: $(TOOLS)
	$(SAY) running the quick tests and noting the branches that they take
	@$(PYTEST) -m "not slow" --cov --cov-report= $(ARGS)
	@$(BIN)/coverage report
	@for room in $(ROOMS); do \
	  taken=$$($(BIN)/coverage report --include="*/hubbub/core/$$room/*" --format=total) || exit 1; \
	  echo "hubbub: $$room: expected $(EXPECTED) % or more, found $$taken %"; done

check: lint
	$(SAY) checking types
	@$(BIN)/mypy

lint: $(TOOLS)
	$(SAY) checking lint and formatting
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || \
	  { echo "hubbub: expected formatted files; '$(BIN)/ruff format .' mends them" >&2; exit 1; }
	$(SAY) checking layers
	@$(BIN)/lint-imports --no-logo

r: $(RUNTIME)
	$(SAY) checking the R package
	@rm -rf build/r && mkdir -p build/r && cd build/r && export HUBBUB_REQUIRED=1 \
	  HUBBUB_COMMAND=$(CURDIR)/$(BIN)/hubbub HUBBUB_PYTHON=$(CURDIR)/$(BIN)/python && \
	  R CMD build $(CURDIR)/r && R CMD check --no-manual hubbub_*.tar.gz

docs: $(PAGES)
	$(SAY) making the pages
	@$(BIN)/python -m sphinx -q --fail-on-warning --keep-going docs docs/_build/html $(ARGS)
	$(SAY) open docs/_build/html/index.html

pdf: $(PDF)
	$(SAY) setting statements and proofs
	@$(BIN)/python docs/pdf/make.py $(ARGS)
	$(SAY) open docs/_build/hubbub-statements.pdf

bench: $(RUNTIME)
	$(SAY) measuring this machine
	@$(BIN)/hubbub bench $(ARGS)

BROWSER ?= chromium

gallery: $(TOOLS)
	$(SAY) making the pictures of the gallery
	@$(BIN)/python -m experiments.gallery --browser $(BROWSER) $(ARGS)

# The last three need the paper's frozen layers: HUBBUB_CONV names their file (docs/experiments.md).
experiments: $(TOOLS)
	$(SAY) making the figures
	@for name in degradation effective_rate joining projection token_lists fat_clients thin_clients scaling audit_power utility \
	    correlated_noise linear_probe; do \
	  $(BIN)/python -m experiments.$$name $(ARGS) || exit 1; done

release: $(RELEASE)
	$(SAY) building the last commit twice
	@$(BIN)/python deploy/release.py

# The Python of the machines that the bundle is for, and of the image: 3.11 is Debian 12's.
FOR ?= 3.11
NODE ?=
BASE ?=

bundle: release
	$(SAY) collecting what it needs
	@sh deploy/bundle.sh $(BIN)/pip $(FOR)

image: bundle
	$(SAY) building the image
	@sh deploy/image.sh $(NODE) $(BASE)

check-deploy:
	@sh deploy/check.sh $(PYTHON)

lock: $(RELEASE)
	@$(COMPILE) $(addprefix --extra ,$(LOCKED)) --output-file constraints.txt $(ARGS) pyproject.toml
	@$(COMPILE) --extra learn --extra net --extra attest --extra sql --constraints constraints.txt --generate-hashes \
	  --no-emit-package torch --output-file deploy/requirements.txt $(ARGS) pyproject.toml
	@$(COMPILE) --extra net --extra attest --constraints constraints.txt --generate-hashes \
	  --output-file deploy/requirements-node.txt $(ARGS) pyproject.toml
	@echo setuptools | $(COMPILE) --constraints constraints.txt --generate-hashes \
	  --output-file deploy/requirements-build.txt $(ARGS) -

clean:
	rm -rf $(VENV) $(VENV)-flower build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov tests/other_language/node_modules
	find src tests benchmarks experiments docs examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The silo in another language (tests/other_language): its tests are skipped where this fails.
$(STRANGER): tests/other_language/package-lock.json
	@npm ci --silent --prefix tests/other_language && touch $@ || \
	  echo "hubbub: expected npm and its registry; the silo in another language is NOT tested" >&2

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "hubbub: expected Python 3.11 or newer as '$(PYTHON)'; name another: make PYTHON=python3.12" >&2; exit 1; }
	$(SAY) creating $(VENV) with $$($(PYTHON) --version)
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "hubbub: expected '$(PYTHON)' to have venv; on Debian: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(RUNTIME): $(CREATED) pyproject.toml constraints.txt
	$(SAY) installing hubbub and torch "(a few minutes the first time)"
	@$(INSTALL) --editable '.[learn]'
	@touch $@

$(ENGINE): $(RUNTIME)
	$(SAY) installing the client and the server of NATS
	@$(INSTALL) --editable '.[learn,net]'
	@touch $@

$(TOOLS): $(RUNTIME)
	$(SAY) installing the tools for checks and tests
	@$(INSTALL) --editable '.[learn,net,otlp,parquet,sql,attest,paper,experiments,docs,pdf,dev]'
	@touch $@

# Flower asks for older versions of what others need too.
$(FLOWER): pyproject.toml constraints.txt
	$(SAY) installing Flower into $(VENV)-flower
	@$(PYTHON) -m venv $(VENV)-flower
	@grep '^torch==' constraints.txt > $(VENV)-flower/constraints.txt
	@$(VENV)-flower/bin/python -m pip install -qq --disable-pip-version-check \
	  --constraint $(VENV)-flower/constraints.txt --editable '.[flower]' 'flwr[simulation]' \
	  'pytest>=9' pytest-xdist hypothesis
	@touch $@

$(PAGES): $(RUNTIME)
	$(SAY) installing what makes pages of texts
	@$(INSTALL) --editable '.[learn,docs]'
	@touch $@

$(PDF): $(CREATED) pyproject.toml constraints.txt
	$(SAY) installing pandoc and typst
	@$(INSTALL) --editable '.[pdf]'
	@touch $@

$(RELEASE): $(CREATED) pyproject.toml constraints.txt
	$(SAY) installing the tools for releases
	@$(INSTALL) 'build' 'hatchling' 'cyclonedx-bom' 'cryptography' 'uv'
	@touch $@
