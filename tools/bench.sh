#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release and the peers, then measures (passes its flags to tools/bench.py).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/bench_peers.sh
exec python3 tools/bench.py "$@"
