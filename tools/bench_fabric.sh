#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release, then measures a brain of 24 processes (tools/bench_fabric.py; its flags are passed on).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/build.sh release tendon_cli
exec python3 tools/bench_fabric.py "$@"
