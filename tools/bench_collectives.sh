#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release and makes the environment of the Python peer, then measures
# (tools/bench_collectives.py; its flags are passed on). With --network first: groups between
# network namespaces (tools/bench_network.py), which needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/build.sh release
if [ "${1:-}" = --network ]; then
  shift
  exec python3 tools/bench_network.py "$@"
fi
tools/python_env.sh
exec python3 tools/bench_collectives.py "$@"
