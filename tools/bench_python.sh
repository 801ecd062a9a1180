#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environment of the Python peers, then measures (tools/bench_python.py; its flags are
# passed on). A peer that could not be installed is named in the table.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh
tools/python_env.sh peers || echo "bench: what the UCXX peer needs could not be installed" >&2
exec python3 tools/bench_python.py "$@"
