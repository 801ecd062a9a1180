#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_symbols.sh LIBRARY: what the shared library exports lies in namespace tendon, nothing else.
set -euo pipefail

symbols=$(nm -D --defined-only --format=posix "$1" | awk '{print $1}' | c++filt)
[ -n "$symbols" ] || { echo "$1 exports nothing"; exit 1; }
foreign=$(grep -Ev '^((vtable|typeinfo|typeinfo name) for )?tendon::' <<<"$symbols" || true)
if [ -n "$foreign" ]; then
  printf 'exported, but not in namespace tendon:\n%s\n' "$foreign"
  exit 1
fi
echo "$(wc -l <<<"$symbols") symbols, all in namespace tendon"
