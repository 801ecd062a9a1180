#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release, makes the environment of the Python peer, then measures (passes its flags to
# tools/bench_collectives.py). With --network first: measures groups between network namespaces
# (tools/bench_network.py), which needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/build.sh release
if [ "${1:-}" = --network ]; then
  shift
  exec python3 tools/bench_network.py "$@"
fi
tools/python_env.sh
exec python3 tools/bench_collectives.py "$@"
