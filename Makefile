# Every target sets the machine up first; that is quick when nothing is missing.
PYTHON := .venv/bin/python
SOURCES := testbed controller workloads reproductions examples setup.py scripts

# by it each of some thousand processes would compile its modules again
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help container setup test-setup p4-tools ryu demo test test-torch test-kernels explore unit
.PHONY: quick ruff lint bytecode coverage wire schemas documents site bench clean root

help:
	@echo "sudo make demo    set up, bring a testbed up, train over it, report under out/demo/, end it"
	@echo "sudo make test    set up, lint, type check, run every test"
	@echo "sudo make test-torch  torch's own distributed tests, by inc and gloo (TORCH=2.12.1)"
	@echo "sudo make test-kernels  the testbed on Debian's kernels, on emulated machines (an hour each)"
	@echo "sudo make bench   set up, measure, write out/bench/"
	@echo "sudo make setup   install what is missing, and nothing else"
	@echo "sudo make p4-tools  install BMv2 and the P4 compiler, for the engine bmv2"
	@echo "make ryu          install ryu, for testbed up --controller ryu; make test does so"
	@echo "make unit         the tests that need no root      make lint   lint and types"
	@echo "make quick        lint, types of what changed, tests of pure code: a minute, no root"
	@echo "make coverage     which lines the tests that need no root reach, in out/coverage/"
	@echo "make explore      property tests, of ever new examples (MINUTES=10)"
	@echo "make site         the documents as pages, in out/site/"
	@echo "make container    an image of this checkout, with podman or docker: docs/containers.md"
	@echo "make clean        remove what the above made in this folder (not the packages of the system)"

root:
	@[ "$$(id -u)" = 0 ] || { \
		echo "make $(MAKECMDGOALS): needs root for network namespaces and XDP;" \
			"run: sudo make $(MAKECMDGOALS)" >&2; \
		exit 3; \
	}

setup:
	@/usr/bin/python3 scripts/setup.py

test-setup:
	@/usr/bin/python3 scripts/setup.py --tests

p4-tools: setup
	@/usr/bin/python3 scripts/install_p4.py

ryu: setup
	@/usr/bin/python3 scripts/install_ryu.py

demo: root setup
	@$(PYTHON) -m testbed.demo

# All that a Debian 12 with set-up's packages has must work; which skips are allowed, tests/skips.py says.
test: export TESTBED_REQUIRE ?= all,-bmv2,-p4c,-quiet,-memory,-kthreads,-history
test: root test-setup
	@$(MAKE) --no-print-directory --jobs 2 --output-sync ryu lint bytecode
	@$(PYTHON) -m tests.kernels --fetch
	@echo "tests: unit, then privileged; required: $(TESTBED_REQUIRE)"
	@$(PYTHON) -m tests.gate

container:
	@scripts/container.py build

# property tests, of examples that are drawn anew each time, until one fails or the time is over
explore: MINUTES ?= 10
explore: setup
	@end=$$(( $$(date +%s) + 60 * $(MINUTES) )); \
	while $(PYTHON) -m pytest -q -x -n auto -m hypothesis tests/unit; do \
		[ $$(date +%s) -lt $$end ] || exit 0; \
	done; exit 1

unit: setup
	@$(PYTHON) -m pytest tests/unit

# of tests without root, or of TESTS=...; processes that tests start count, too
coverage: TESTS ?= tests/unit
coverage: test-setup
	@rm -rf out/coverage; mkdir -p out/coverage
	@$(PYTHON) -m coverage run -m pytest -q -n auto --dist loadfile $(TESTS)
	@$(PYTHON) -m coverage combine -q; $(PYTHON) -m coverage html -q
	@$(PYTHON) -m coverage report --skip-covered --sort cover | tee out/coverage/report.txt
	@echo "coverage: out/coverage/index.html"

wire:
	@$(PYTHON) -m scripts.render

# schemas of `--json` output, tables and the configuration's schema come from declarations
schemas documents:
	@$(PYTHON) -m testbed.documents

site: test-setup
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "site: python3 -m http.server -d out/site"

# what to run between two edits; what it leaves out, docs/testing.md says
quick: ruff
	@$(PYTHON) -m tests.quick $(SOURCES)

ruff: setup
	@echo "lint: ruff check"
	@$(PYTHON) -m ruff check .
	@echo "lint: ruff format"
	@$(PYTHON) -m ruff format --check .

lint: ruff
	@echo "lint: workflows"
	@$(PYTHON) -m check_jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(PYTHON) -m check_jsonschema --builtin-schema vendor.github-actions action.yml
	@echo "types: mypy --strict"
	@$(PYTHON) -m mypy --strict $(SOURCES)

# what else each process of a test compiles anew, and each lane rewrites; what is wrong with it, tests say
bytecode: setup
	@$(PYTHON) -m compileall -q $(SOURCES)
	@$(PYTHON) -m pytest --collect-only -q >/dev/null || true

# a quarter of an hour; the gate runs tests/privileged/test_torch.py. With TORCH=2.12.1 all of these run on
# that version, in an environment of its own
test-torch: TORCHS = $(if $(TORCH),.venv-torch-$(TORCH)/bin/python,$(PYTHON))
test-torch: root test-setup
ifdef TORCH
	@/usr/bin/python3 scripts/install_torch.py $(TORCH)
	@$(TORCHS) -m pytest tests/unit/test_backend_methods.py tests/privileged/test_torch.py
else
	@/usr/bin/python3 scripts/install_libraries.py
	@$(PYTHON) -m tests.torch.libraries
endif
	@$(TORCHS) -m tests.torch --json out/torch$(TORCH).json $(if $(SOURCES),--sources $(SOURCES))
	@$(TORCHS) -m tests.torch.again

# Debian 12's own kernel, and that of its backports; make test runs the short form on the first. With
# KERNEL_COMMAND=".venv/bin/testbed doctor" that command on the first.
test-kernels: root test-setup
ifdef KERNEL_COMMAND
	@$(PYTHON) -m tests.kernels $(KERNEL_COMMAND)
else
	@$(PYTHON) -m tests.kernels --long
endif

bench: root setup
	@$(PYTHON) -m tests.bench.goodput --json out/bench/goodput.json
	@$(PYTHON) -m tests.bench.systems --json out/bench/systems.json
	@$(PYTHON) -m tests.bench.aggregators --json out/bench/aggregators.json
	@$(PYTHON) -m tests.bench.engines --json out/bench/engines.json
	@$(PYTHON) -m tests.bench.tried --json out/bench/tried.json
	@$(PYTHON) -m tests.bench.tried --mtu 9000 --workers 4 --groups endpoint,scheduling \
		--json out/bench/tried-jumbo.json
	@$(PYTHON) -m tests.bench.spent --json out/bench/spent.json
	@$(PYTHON) -m tests.bench.spent --mtu 9000 --json out/bench/spent-jumbo.json
	@$(PYTHON) -m tests.bench.limit --json out/bench/limit.json
	@$(PYTHON) -m tests.bench.fsdp --json out/bench/fsdp.json
	@$(PYTHON) -m tests.bench.ticks --json out/bench/ticks.json
	@$(PYTHON) -m tests.bench.faults --json out/bench/faults.json
	@$(PYTHON) -m tests.bench.congestion --json out/bench/congestion.json
	@$(PYTHON) -m tests.bench.bringup --json out/bench/bringup.json
	@$(PYTHON) -m tests.bench.links --json out/bench/links.json
	@$(PYTHON) -m tests.bench.simulation --json out/bench/simulation.json
	@$(PYTHON) -m tests.bench.policies --json out/bench/policies.json
	@$(PYTHON) -m tests.bench.clusters --json out/bench/clusters.json
	@$(PYTHON) -m tests.bench.fuzz --json out/bench/fuzz.json
	@$(PYTHON) -m tests.bench.mutations --json out/bench/mutations.json
	@$(PYTHON) -m tests.bench.milp --json out/bench/milp.json
	@$(PYTHON) -m tests.bench.verdict --json out/bench/verdict.json
	@$(PYTHON) -m tests.bench.verdict --held-out --json out/bench/verdict-held-out.json
	@$(PYTHON) -m tests.bench.tables

clean:
	@rm -rf .venv .venv-ryu .cache out build optinc.egg-info \
		.mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
