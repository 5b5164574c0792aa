# Kernel Scientist. `make` lists what can be asked for.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CHECKED := kernelsci kernelsci_site optimizer runners benchmarks tests manage.py hatch_build.py
stamp = $(VENV)/.installed-$(1)-$(shell cat requirements-runner.txt requirements.txt $(2) | sha256sum | cut -c1-16)
STAMP := $(call stamp,product,)
DEV_STAMP := $(call stamp,development,requirements-dev.txt)
SCRIPTS := $(VENV)/browser
SCRIPTS_STAMP = $(SCRIPTS)/.installed-$(shell sha256sum < kernelsci_site/npm/package-lock.json | cut -c1-16)
# Where the machine has no npm, PyPI brings one. No absolute path here: make divides those with spaces.
NPM := $(or $(shell command -v npm),$(BIN)/npm)
INSTALL := $(BIN)/python -m kernelsci.install

# A shell that forbids bytecode would have each of hundreds of processes compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: bench-pages bench-live help start install install-dev test lint typecheck format cheats cheats-gpu

help:  ## this list
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | column -t -s "$$(printf '\t')"

start: export KERNELSCI_STARTED := $(shell date +%s)
start: install  ## install what is missing, then run everything; Ctrl-C stops
	@exec $(BIN)/python manage.py up --demo $(UP)

install: $(STAMP) $(SCRIPTS_STAMP)  ## a virtual environment with what the product runs on

install-dev: $(DEV_STAMP) $(SCRIPTS_STAMP)  ## the same, with what tests and checks need

# Two processes share the tests, a file's tests in one of them; tests/conftest.py says what else goes together.
PYTEST := $(BIN)/python -m pytest --numprocesses=$(or $(PROCESSES),2) --dist=loadscope --no-loadscope-reorder
test: install-dev axe  ## every suite, with CI=true every test; names what it leaves out and what it leaves to CI
	$(PYTEST) --junitxml=var/tests.xml $(TESTS)

.PHONY: test-all test-long check unit suite-time
test-all: install-dev axe  ## every test this machine can run, as in CI: what tests/left_to_ci.py names too
	$(PYTEST) --junitxml=var/tests.xml --all $(TESTS)

test-long: install-dev axe  ## the same with all long forms (e2e, site-long, all cheats, the long chaos); an hour
	$(PYTEST) --junitxml=var/tests-long.xml --long $(TESTS)
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --jobs 1000 --faults 200

.PHONY: passed
passed: install-dev  ## run all build tests and record them in tests/passed.json, so that `make test` skips unchanged ones; commit the file
	$(BIN)/python -m pytest -n0 -q --long --note-passed -m unchanged

.PHONY: e2e site-long
e2e: install-dev axe  ## the browser tests with their long forms: every page in every width and appearance, a real worker
	$(PYTEST) --long $(or $(TESTS),tests/browser)

site-long: install-dev  ## every way to start a site, in bad surroundings too
	$(PYTEST) --long tests/site/test_up.py tests/site/test_surroundings.py

check: install-dev  ## style, types and fast tests, side by side: what to run after every change
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --keep-going lint typecheck unit

unit: install-dev  ## fast tests that need no server, browser, compiler or other program
	$(PYTEST) -q --unit $(TESTS)

suite-time: install-dev  ## where the time of the last `make test` went, by part, file and test
	@$(BIN)/python -m tests.suite_time $(SUITE)

.PHONY: axe
axe:  # axe-core checks the pages' accessibility; without npm its tests are left out and named
	@command -v npm >/dev/null || exit 0; test -d tests/browser/node_modules/axe-core || { cd tests/browser && npm ci --silent; }

lint: install-dev  ## style, likely bugs, and who may import whom (docs/development.md)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/lint-imports --no-logo

.PHONY: structure
structure: install-dev  ## import cycles between folders and files, modules at the top of each package
	$(BIN)/python -m benchmarks.structure --list

format: install-dev  ## put the code in shape
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

typecheck: install-dev  ## strict types
	$(BIN)/mypy

bench-pages: install  ## how fast the pages are in this database; manage.py load_scale fills it
	$(BIN)/python -m benchmarks.pages $(BENCH)

bench-live: install-dev  ## 300 sockets at one run: delay, losses, doubles
	$(BIN)/python -m benchmarks.live $(BENCH)

.PHONY: second-server
SECOND_SERVER ?= var/second-server
second-server: install-dev  ## the provider against `transformers serve` and a tiny random model, in an environment of its own
	test -x $(SECOND_SERVER)/bin/transformers || { $(PYTHON) -m venv $(SECOND_SERVER) && \
	  $(SECOND_SERVER)/bin/pip install --quiet "$$(grep -oE '^torch==[0-9.]+' requirements-runner.txt)" "transformers[serving]==5.23.0"; }
	KERNELSCI_TRANSFORMERS=$(abspath $(SECOND_SERVER))/bin/python $(BIN)/python -m pytest -q tests/optimizer/test_llm_second_server.py

.PHONY: bench-paint
bench-paint: install-dev  ## first paint of a run's page with a slow processor, in this database; bytes of script
	$(BIN)/python -m benchmarks.paint $(BENCH)

.PHONY: fresh
fresh:  ## two commands on fresh machines: FRESH="bookworm trixie", see benchmarks/fresh.py; root, debootstrap, half an hour
	$(PYTHON) -m benchmarks.fresh $(or $(FRESH),bookworm trixie)

.PHONY: audit fuzz-api
audit: install-dev  ## known vulnerabilities in what the product depends on; fails where one could not be looked up
	@told=$$($(BIN)/pip-audit --strict --progress-spinner off -r requirements.txt 2>&1); code=$$?; echo "$$told"; \
	case $$code,$$told in \
	  0,*) echo "audit: every package was looked up, none has a known vulnerability";; \
	  *"vulnerabilit"*"in"*"package"*) echo "audit: known vulnerabilities, see above";; \
	  *) echo "audit: could not be looked up, so nothing is known; ask again where PyPI's vulnerability data can be reached";; \
	esac; exit $$code

fuzz-api: install-dev  ## the API against made-up requests as two people, nested and huge bodies; EXAMPLES an operation
	FUZZ_EXAMPLES=$(or $(EXAMPLES),100) $(PYTEST) -rP --show-capture=stdout --durations=5 tests/site/test_fuzz_api.py

.PHONY: attack
attack: install-dev  ## attacks on everything around a candidate, each with a control; counts attempts and holes
	$(BIN)/python -m pytest -q --long $(or $(TESTS),tests/attack tests/runners/test_sandbox_escapes.py)

.PHONY: chaos deploy claims scale scale-hosts migrate-scale
chaos: install-dev  ## the whole stack under faults; SEED, CHAOS="--jobs 1000 --faults 200" for the long form
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) $(CHAOS)

deploy: install-dev  ## a rehearsed deploy: drained, everything replaced, nothing lost, nothing done twice
	$(BIN)/python -m tests.chaos --deploy $(CHAOS)

claims: install-dev  ## 1,000 waiting jobs: claims a second by 1, 2, 4 clients
	$(BIN)/python -m benchmarks.claims $(BENCH)

scale: install-dev  ## throughput of 1, 2, 4, 8 measuring workers, jobs that sleep
	$(BIN)/python -m benchmarks.scale $(BENCH)

scale-hosts: install-dev  ## two worker hosts in network namespaces, one is cut off; needs root
	$(BIN)/python -m benchmarks.scale --hosts

migrate-scale: install-dev  ## how long an upgrade holds up a working site: a million rows a table; BENCH="--rows 100000"
	$(BIN)/python -m benchmarks.migrations $(BENCH)

.PHONY: tour tour-gpu
tour: install  ## from a program to kernels in the program, on this CPU: capture, evaluate, export, endtoend
	$(BIN)/python -m benchmarks.tour $(TOUR)

TOUR_TARGET ?= sm_90
tour-gpu:  ## the same in bfloat16 on this machine's GPU; needs a python3 with torch, and nvcc; TOUR=--fp16
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m benchmarks.tour --target $(TOUR_TARGET) $(TOUR)

cheats: install  ## every cheat and its honest twin on this CPU: what became of them
	$(BIN)/python -m tests.cheats.table $(CHEATS)

cheats-gpu:  ## the same on this machine's GPU; needs a python3 with torch and triton, nothing else
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m tests.cheats.table --target gpu $(CHEATS)

# A stamp per content of the requirements: when nothing changed, nothing is asked of pip.
$(STAMP): | $(BIN)/python
	@$(INSTALL) requirements.txt
	@rm -f $(VENV)/.installed-product-* && touch $@

$(DEV_STAMP): | $(BIN)/python
	@$(INSTALL) requirements-dev.txt
	@rm -f $(VENV)/.installed-* && touch $@ $(STAMP)

# Scripts of pages (kernelsci_site/npm). Pages work without: then live parts are replaced whole and the lineage stands
# still, so a machine that cannot reach npm's registry is told, and asks again at the next `make`. The cache lies here
# because a home may be read-only. A company's certificate authority is known to the system alone, which node has to be
# told to ask. --prefix would have npm leave out the machine's npmrc, and with it a company's registry; the waits between
# attempts, 70 s in all, would be the start's.
SOON := --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=2000
$(SCRIPTS_STAMP): | $(BIN)/python $(NPM)
	@mkdir -p $(SCRIPTS) && cp kernelsci_site/npm/package*.json $(SCRIPTS)
	@bin=$$(cd $(BIN) && pwd); \
	if (cd $(SCRIPTS) && PATH="$$bin:$$PATH" NODE_USE_SYSTEM_CA=1 npm ci --silent --ignore-scripts --cache .npm $(SOON)); \
	then rm -rf $(SCRIPTS)/.installed-* $(SCRIPTS)/.npm; touch $@; \
	else echo "npm's registry cannot be reached: pages run without morphing and zoom until the next make install."; fi

$(BIN)/npm: | $(BIN)/python
	-@$(INSTALL) kernelsci_site/npm/requirements.txt

# Names everything that the machine lacks before anything is downloaded, then makes the environment.
$(BIN)/python:
	@PYTHON="$(if $(filter file,$(origin PYTHON)),,$(PYTHON))" sh kernelsci/install/prepare.sh $(VENV)
