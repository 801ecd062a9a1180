#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the engine's controller and makes the environment of its workers and peers, then measures
# (tools/bench_engine.py; its flags are passed on). A peer that could not be installed is named in the table.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh
tools/python_env.sh peers || echo "bench: what the peers of the engine need could not be installed" >&2
cmake --preset release -DTENDON_CONTROL=ON >/dev/null
tools/build.sh release engine_controller
exec python3 tools/bench_engine.py "$@"
