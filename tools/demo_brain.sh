#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo_brain.sh [BRAIN-ARGUMENT...]: runs the brain of examples/brain from build/demo, and writes its page to
# build/demo/brain.html. DEMO_PYTHON names a Python other than that of build/demo/venv.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/demo
# The package in the layout of a wheel.
rm -rf "$folder/package"
mkdir "$folder/package"
cp -r python/tendon "$folder/package"
cp "$folder"/python/_tendon*.so "$folder/package/tendon"

printf '\n== a distributed brain\n'
exec env PYTHONPATH="$PWD/$folder/package" TENDON_LOG="${TENDON_LOG:-error}" PYTHONDONTWRITEBYTECODE=1 \
  "${DEMO_PYTHON:-$folder/venv/bin/python}" examples/brain/brain.py --programs "$folder/examples/brain" \
  --tendon "$folder/bin/tendon" --page "$folder/brain.html" "$@"
