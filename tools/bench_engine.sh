#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the engine's controller, makes the environment of its workers and peers, then measures (passes its flags to
# tools/bench_engine.py). The table names a peer that could not be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh
tools/python_env.sh peers || echo "bench: what the peers of the engine need could not be installed" >&2
cmake --preset release -DTENDON_CONTROL=ON >/dev/null
tools/build.sh release engine_controller
exec python3 tools/bench_engine.py "$@"
