#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_sanitized.sh [PYTEST-ARGUMENT...]: runs tests/python with the extension module under
# AddressSanitizer and UndefinedBehaviorSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/pytest_again.sh

tools/python_env.sh tests
exec 9>build/python/lock
flock --shared 9
tools/build.sh python-asan tendon_python_modules python_peer tendon_cuda_double

# The package in the layout of a wheel; it precedes the installed one.
folder=build/python-asan
rm -rf "$folder/package"
mkdir "$folder/package"
cp -r python/tendon "$folder/package"
cp "$folder"/python/_*.so "$folder/package/tendon"
if [ -f "$folder/python/tendon_v1.binpb" ]; then cp "$folder/python/tendon_v1.binpb" "$folder/package/tendon/control"; fi

# Python is not linked with them. Without the second, the first finds no __cxa_throw to intercept.
preload=$(g++ -print-file-name=libasan.so):$(g++ -print-file-name=libstdc++.so)
# malloc: Python's own allocator hides the bounds of its objects. Leaks: CPython frees little at its end.
environment=(
  LD_PRELOAD="$preload"
  PYTHONMALLOC=malloc
  PYTHONPATH="$PWD/$folder/package"
  ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1
  UBSAN_OPTIONS=print_stacktrace=1
  TENDON_PYTHON_PEER="$PWD/$folder/tests/python_peer"
  TENDON_CUDA_DOUBLE="$PWD/$folder/tests/libtendon_cuda_double.so"
)

python() {
  env "${environment[@]}" build/python/venv/bin/python "$@"
}

# Plants an array whose declared length exceeds its memory: sending it reads beyond the allocation.
finds_planted_fault() {
  nm -D --undefined-only "$folder"/package/tendon/_tendon*.so | grep __asan_report >/dev/null || return 1
  local said
  said=$(python - 2>&1 <<'END'
import ctypes, tendon
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
class Long:
    __array_interface__ = {"version": 3, "typestr": "|u1", "shape": (9999,),
                           "data": (malloc(9), False)}
with tendon.listen("127.0.0.1:0") as listener:
    tendon.connect(listener.address).send({"x": Long()})
END
  ) || true
  [[ $said == *heap-buffer-overflow* ]]
}

if ! finds_planted_fault; then
  echo "python_sanitized: the sanitizer does not see a planted fault"
  exit 1
fi
echo "== test: python under sanitizers"
run_pytest "$folder/pytest.xml" python "$@"
