#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the release and the peers in Rust. These are optional: without cargo or its registry the tables say so.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/build.sh release

peers=build/release/benchmarks/peers
rust_peer() {
  local folder=$1 program=$2
  echo "== build: $folder peer"
  if cargo build --release --manifest-path "benchmarks/peers/$folder/Cargo.toml" \
      --target-dir "$peers/$folder" --jobs "${JOBS:-$(nproc)}"; then
    install "$peers/$folder/release/$program" "$peers/$program"
  else
    echo "bench: the $folder peer could not be built; it needs Rust 1.89 and the registry" >&2
    rm -f "$peers/$program"
  fi
}
if command -v cargo >/dev/null; then
  mkdir -p "$peers"
  rust_peer iceoryx2 iceoryx2_ping_pong
  rust_peer zenoh zenoh_topic
fi
