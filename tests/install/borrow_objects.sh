#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# borrow_objects.sh OBJECTS COMPILER ARGUMENT...: a compiler launcher. It compiles the layer `core`
# and takes the objects of the other layers from OBJECTS, where the build under test left them. All
# objects of the library have one command line, so those of `core` show whether it is right.
set -euo pipefail

borrowed=$1
shift
output= depfile= previous=
for argument; do
  case $previous in
    -o) output=$argument ;;
    -MF) depfile=$argument ;;
  esac
  previous=$argument
done

# tendon_<layer>.dir/<object>
name=${output##*/src/CMakeFiles/}
if [ "$name" = "$output" ] || [[ $name == tendon_core.dir/* ]] || [ ! -f "$borrowed/$name" ]; then
  exec "$@"
fi
cp "$borrowed/$name" "$output"
echo "$output: $borrowed/$name" >"$depfile"
