#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release and the peers, then measures (tools/bench.py; its flags are passed on).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/bench_peers.sh
exec python3 tools/bench.py "$@"
