# SPDX-License-Identifier: Apache-2.0
# The front door. Each verb does all it needs on a fresh Debian 12; a second run does no needless
# work. The inner loop of a developer is in CONTRIBUTING.md.
.DEFAULT_GOAL := help
.PHONY: help setup demo engine engine-soak test bench lint asan python-asan tsan fuzz test-long install wheel clean
.PHONY: tests check docs examples benchmarks

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
ENGINE_ARGS ?=
SOAK_ARGS ?=
export JOBS FUZZ_SECONDS

help: ## list the verbs (this)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing (tools/packages.txt)
	@tools/setup.sh build test

demo: ## move a real model checkpoint between two processes, then run a distributed brain
	@tools/demo.sh

engine: ## run a language model on workers that Tendon connects; ENGINE_ARGS="--layout 3,2,1 --port 8000"
	@tools/engine.sh $(ENGINE_ARGS)

engine-soak: ## kill, stop and hang workers of the engine while clients ask; SOAK_ARGS="--layout 3,2,1 --seconds 600"
	@tools/setup.sh build test control secure engine
	@[ -f build/test/build.ninja ] || cmake --preset test-quick
	@tools/engine_soak.sh $(SOAK_ARGS)

test: ## build and run all tests
	@tools/setup.sh build test zenoh control secure engine
	@[ -f build/test/build.ninja ] || cmake --preset test-quick
	@# Both, whatever the first says: one run shows all there is.
	@status=0; tools/run_tests.sh test || status=1; tools/python_tests.sh || status=1; exit $$status

bench: ## measure beside memcpy, sockets, MPI, UCX and Python peers; writes docs/benchmarks.md
	@tools/setup.sh build bench zenoh control secure
	@tools/build.sh release
	@tools/bench.sh
	@tools/bench_secure.py
	@tools/bench_hand_over.sh 3
	@tools/bench_python.sh
	@tools/bench_engine.sh
	@tools/bench_collectives.sh
	@tools/bench_collectives.sh --network
	@tools/bench_fabric.sh --topics
	@tools/bench_fabric.sh

lint: ## formatting, naming, layers and the rules of the house
	@tools/setup.sh build test control secure engine lint
	@tools/lint.sh

asan: ## run the tests under the address and undefined sanitizers
	@tools/setup.sh build test control secure engine
	@cmake --preset asan >/dev/null # all tests and checks, if .ci/run chose some
	@tools/run_tests.sh asan -LE 'lint|install'

python-asan: ## run the tests of the Python package under the same
	@tools/setup.sh build test control secure engine
	@tools/python_env.sh tests
	@cmake --preset python-asan >/dev/null
	@tools/python_sanitized.sh

tsan: ## run the tests under the thread sanitizer
	@tools/setup.sh build test control secure engine
	@cmake --preset tsan >/dev/null
	@tools/run_tests.sh tsan -LE 'lint|install'

fuzz: ## fuzz each parser for FUZZ_SECONDS (60)
	@tools/setup.sh build fuzz
	@tools/build.sh fuzz
	@tools/fuzz.sh

test-long: ## run the tests 20 times each in random order, the engine in all layouts, torch's own tests, then the fuzzers
	@tools/setup.sh build test control secure engine fuzz
	@TENDON_TEST_LONG=1 tools/python_tests.sh tests/python/test_engine_model.py tests/python/test_examples.py \
	  tests/python/test_torch_backend.py tests/python/test_torch_processes.py
	@tools/torch_conformance.sh
	@tools/build.sh test unit_control process
	@tools/engine_soak.sh --layout 3,2,1
	@tools/engine_soak.sh --layout 1,2,2
	@# Not by ctest, whose limits are those of short tests.
	@TENDON_TEST_LONG=1 build/test/tests/unit_control --gtest_brief=1 --gtest_filter='ControlCycles.*'
	@TENDON_TEST_LONG=1 build/test/tests/process --gtest_brief=1 --gtest_filter='Overlap.*:EndOfAPublisher.*:Soak.*'
	@tools/build.sh test unit_runtime
	@TENDON_TEST_LONG=1 build/test/tests/unit_runtime --gtest_brief=1 --gtest_filter='SecureFlood.*'
	@tools/planted_faults.py
	@tools/run_tests.sh test -LE 'lint|install' --repeat until-fail:20 --schedule-random
	@$(MAKE) --no-print-directory fuzz

install: ## install the release build under PREFIX (/usr/local); DESTDIR is honoured
	@tools/setup.sh build
	@tools/build.sh release tendon_installed
	@cmake --install build/release --prefix "$(PREFIX)"
	@# The loader looks in its cache for what lies in /usr/local.
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

wheel: ## make the Python wheel for other machines in build/dist, and try it on a minimal Debian 12 (as root)
	@tools/setup.sh wheel control zenoh elsewhere
	@rm -rf build/dist
	@python3 -m pip wheel . --no-deps --wheel-dir build/dist
	@tools/check_wheel.py build/dist/*.whl
	@tools/check_wheel_elsewhere.sh build/dist/*.whl

# Names that people try first.
tests check: test

docs:
	@echo "The documentation is Markdown and needs no build: begin with docs/index.md. This checks its links:"
	@tools/setup.sh build
	@python3 tools/check_docs.py links .

examples:
	@tools/setup.sh build
	@tools/build.sh release tendon_examples
	@echo "The programs are in build/release/examples; examples/README.md says what each shows."

benchmarks:
	@echo "'make bench' measures for some hours and writes docs/benchmarks.md. For one figure at once:"
	@echo "  tools/build.sh release tendon_cli && build/release/bin/tendon bench pipe"

clean: ## remove everything that was built
	rm -rf build
