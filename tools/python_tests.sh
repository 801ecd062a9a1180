#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_tests.sh [PYTEST-ARGUMENT...]: runs tests/python against the installed wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/pytest_again.sh

tools/python_env.sh tests
# A shared lock: the environment is not remade while tests use it, and several may run.
exec 9>build/python/lock
flock --shared 9
echo "== test: python"
export TENDON_PYTHON_PEER=$PWD/build/test/tests/python_peer
export TENDON_CUDA_DOUBLE=$PWD/build/test/tests/libtendon_cuda_double.so
export TENDON_BRAIN_PROGRAMS=$PWD/build/test/examples/brain
export TENDON_ENGINE_CONTROLLER=$PWD/build/test/examples/engine/engine_controller
export TENDON_ENGINE_WORKER=$PWD/build/test/examples/engine/engine_worker
run_pytest build/python/junit.xml build/python/venv/bin/python "$@"
