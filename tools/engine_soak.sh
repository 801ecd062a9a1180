#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engine_soak.sh [--layout TP,PP,KVP] [--seconds N] [--seed N] [--hang-timeout N] [--clients N]: builds the engine's
# controller, then kills, stops and hangs workers while clients send requests (tests/python/engine_support/soak.py).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh tests
tools/build.sh test engine_controller
exec 9>build/python/lock
flock --shared 9
exec env PYTHONPATH=tests/python build/python/venv/bin/python -m engine_support.soak \
  --controller-program build/test/examples/engine/engine_controller "$@"
