#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release and the peers, then measures (tools/bench.py; its flags are passed on).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/build.sh release

# The one peer in another language is optional: without cargo or its registry the table says so.
peers=build/release/benchmarks/peers
if command -v cargo >/dev/null; then
  echo "== build: iceoryx2 peer"
  mkdir -p "$peers"
  if cargo build --release --manifest-path benchmarks/peers/iceoryx2/Cargo.toml \
      --target-dir "$peers/iceoryx2" --jobs "${JOBS:-$(nproc)}"; then
    install "$peers/iceoryx2/release/iceoryx2_ping_pong" "$peers/iceoryx2_ping_pong"
  else
    echo "bench: the iceoryx2 peer could not be built; it needs Rust 1.89 and the registry" >&2
    rm -f "$peers/iceoryx2_ping_pong"
  fi
fi

exec python3 tools/bench.py "$@"
