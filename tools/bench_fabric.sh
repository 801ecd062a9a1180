#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release, then measures a brain of 24 processes (passes its flags to tools/bench_fabric.py). With --topics
# first: builds the peers too, and measures topics between hosts, beside a stopped subscriber and as nodes join
# (tools/bench_fabric_topics.py), which needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --topics ]; then
  shift
  tools/bench_peers.sh
  exec python3 tools/bench_fabric_topics.py "$@"
fi
tools/build.sh release tendon_cli bench_processes
exec python3 tools/bench_fabric.py "$@"
