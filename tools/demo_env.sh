#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo_env.sh [plan|lacks PYTHON]: makes build/demo/venv, the virtual environment for the brain of `make demo`: NumPy,
# scikit-learn, and the tools that compile the extension module. 240 MB; remade only when its versions, those of the
# tests, changed. `plan` prints the pending download, or nothing; `lacks` prints what another Python lacks.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/demo
packages='cloudpickle joblib nanobind narwhals numpy scikit-learn scipy threadpoolctl typing_extensions'
if [ "${1:-}" = lacks ]; then
  "$2" - <<'PYTHON' || echo "Python 3.11"
import importlib.util, os, sys, sysconfig
assert sys.version_info >= (3, 11)
needed = {"numpy": "numpy (2 or later)", "sklearn": "scikit-learn", "nanobind": "nanobind (3.1)"}
lacks = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    lacks.append("Python.h")
print(", ".join(lacks))
PYTHON
  exit
fi
wanted=$(grep -E "^(${packages// /|})==" tests/python/requirements.txt)
if [ "$wanted" = "$(cat "$folder/venv.made" 2>/dev/null)" ]; then exit; fi
if [ "${1:-}" = plan ]; then
  echo "Python packages, in $folder/venv: $(xargs <<<"$wanted"); a download of 63 MB, 240 MB on disk"
  exit
fi

mkdir -p "$folder"
rm -f "$folder/venv.made"
python3 -m venv --clear "$folder/venv"
# Python compiles modules when it imports them; compiling all of scipy takes half a minute.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
  -r /dev/stdin <<<"$wanted"
echo "$wanted" >"$folder/venv.made"
