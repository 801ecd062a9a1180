#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh SOURCE COMPILER [FLAG...]: compiles the file twice. With TENDON_MUST_COMPILE it must be
# accepted (the code around the fault is right); without, it must be refused with the text that the
# file names in a line "// expect: text" (it fails for the right reason). Compilers word it differently:
# any one of several such lines will do.
set -euo pipefail

source=$1
shift
compile=("$@" -std=c++20 -fsyntax-only "$source")

expected=$(sed -n 's|^// expect: ||p' "$source")
if [ -z "$expected" ]; then
  echo "$source: the line '// expect: text' is missing"
  exit 1
fi
if ! "${compile[@]}" -DTENDON_MUST_COMPILE=1; then
  echo "$source: the right form was refused"
  exit 1
fi
if messages=$("${compile[@]}" 2>&1); then
  echo "$source: the wrong form was accepted"
  exit 1
fi
if ! grep -qF "$expected" <<<"$messages"; then
  printf '%s\n' "$messages" "$source: refused, but not with: $expected"
  exit 1
fi
