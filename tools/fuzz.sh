#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer of the fuzz preset for FUZZ_SECONDS. New inputs are written to build/fuzz/corpus/, never into the
# repository: copy an instructive one to tests/fuzz/corpus/<name>/.
set -euo pipefail
cd "$(dirname "$0")/.."

count=0
for fuzzer in build/fuzz/tests/fuzz/*_fuzz; do
  [ -x "$fuzzer" ] || continue
  name=$(basename "$fuzzer" _fuzz)
  found="build/fuzz/corpus/$name"
  mkdir -p "$found"
  echo "== fuzz: $name"
  "$fuzzer" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/$name"
  count=$((count + 1))
done
if [ $count -eq 0 ]; then
  echo "fuzz: no fuzzer was built" >&2
  exit 1
fi
echo "fuzz: $count fuzzers, no findings"
