#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environment of the Python peers, then measures (passes its flags to tools/bench_python.py). The table names
# a peer that could not be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh
tools/python_env.sh peers || echo "bench: what the UCXX peer needs could not be installed" >&2
exec python3 tools/bench_python.py "$@"
