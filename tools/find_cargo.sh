#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# find_cargo.sh: prints the first cargo, from PATH or Debian, that is new enough for the crate of Zenoh.
# cmake/zenoh.cmake has the required version. Fails if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

oldest=$(sed -n 's/^set(oldest_rustc \(.*\))$/\1/p' cmake/zenoh.cmake)
for cargo in "$(command -v cargo || true)" /usr/bin/cargo; do
  version=$("$cargo" --version 2>/dev/null | cut -d' ' -f2) || continue
  if printf '%s\n%s\n' "$oldest" "$version" | sort --check=quiet --version-sort; then
    echo "$cargo"
    exit
  fi
done
exit 1
