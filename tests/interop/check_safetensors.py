#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what Tendon writes with the public safetensors package, and the other way round.

check_safetensors.py HELPER FOLDER    HELPER is safetensors_file, FOLDER keeps the package

The package is taken from where it is installed, else into a virtual environment in FOLDER. Without
it the exit code is 77: skipped.
"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "safetensors==0.8.0"

# The name of a type for the package's writer, its name in a file, bytes of an element. All that
# the package knows but float4_e2m1fn_x2, whose elements are no whole bytes.
TYPES = [
    ("bool", "BOOL", 1),
    ("uint8", "U8", 1),
    ("int8", "I8", 1),
    ("uint16", "U16", 2),
    ("int16", "I16", 2),
    ("uint32", "U32", 4),
    ("int32", "I32", 4),
    ("uint64", "U64", 8),
    ("int64", "I64", 8),
    ("float16", "F16", 2),
    ("bfloat16", "BF16", 2),
    ("float32", "F32", 4),
    ("float64", "F64", 8),
    ("complex64", "C64", 8),
    ("float8_e4m3fn", "F8_E4M3", 1),
    ("float8_e4m3fnuz", "F8_E4M3FNUZ", 1),
    ("float8_e5m2", "F8_E5M2", 1),
    ("float8_e5m2fnuz", "F8_E5M2FNUZ", 1),
    ("float8_e8m0fnu", "F8_E8M0", 1),
]
OTHERS = [
    ("deep/er/and/deeper", "int16", [5]),
    ("with.dot", "uint8", [3]),
    ("Zo\u00eb \u20ac", "float32", [1]),
    ("quote\"back\\slash", "uint8", [1]),
    ("scalar", "float64", []),
    ("empty/first", "float32", [0, 4]),
    ("empty/last", "int64", [4, 0]),
]
METADATA = {"format": "pt", "author": "Zo\u00eb"}


def samples():
    """name, the writer's type, the file's type, shape, bytes"""
    by_name = {writer: (name, size) for writer, name, size in TYPES}
    wanted = [("all/" + name, writer, [2, 3]) for writer, name, _ in TYPES] + OTHERS
    for path, writer, shape in wanted:
        name, size = by_name[writer]
        for dimension in shape:
            size *= dimension
        data = bytes(
            (at * 7 + len(path.encode()) * 31) % (2 if name == "BOOL" else 256)
            for at in range(size)
        )
        # Files have flat names; Tendon joins those of a path by dots.
        yield path.replace("/", "."), writer, name, shape, data


def use_package(folder: Path) -> None:
    """Goes on under a Python that has the package, or ends the test as skipped."""
    if importlib.util.find_spec("safetensors") is not None:
        return
    if os.environ.get("TENDON_INTEROP_VENV"):
        sys.exit("the virtual environment lacks the package that was installed into it")
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--only-binary", ":all:", "--no-deps", "--retries", "2", "--timeout", "10", PACKAGE],
    ):
        if (folder / "complete").exists():
            break
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            last = (made.stderr.strip() or made.stdout.strip() or "no output").splitlines()[-1]
            print(f"check_safetensors.py: Skipped\n{PACKAGE} cannot be had: {last}")
            sys.exit(77)
    (folder / "complete").touch()
    environment = dict(os.environ, TENDON_INTEROP_VENV="1")
    sys.stdout.flush()
    os.execve(python, [str(python), *sys.argv], environment)


def check_ours(helper: str, file: Path) -> list[str]:
    import safetensors

    subprocess.run([helper, "write", str(file)], check=True)
    faults = []
    found = dict(safetensors.deserialize(file.read_bytes()))
    for path, _, dtype, shape, data in samples():
        tensor = found.pop(path, None)
        if tensor is None:
            faults.append(f"no tensor {path!r}")
        elif (tensor["dtype"], tensor["shape"], bytes(tensor["data"])) != (dtype, shape, data):
            faults.append(f"{path!r} is {tensor}, not {dtype} {shape} {data!r}")
    faults += [f"a tensor too many: {name!r}" for name in found]
    # The package shows metadata through numpy or torch only; it has read the header by now.
    size = int.from_bytes(file.read_bytes()[:8], "little")
    metadata = json.loads(file.read_bytes()[8 : 8 + size])["__metadata__"]
    for key, value in METADATA.items():
        if metadata.get(key) != value:
            faults.append(f"metadata {key!r} is {metadata.get(key)!r}")
    json.loads(metadata["tensordict"])
    return faults


def write_theirs(file: Path) -> None:
    import safetensors

    kept = []
    tensors = {}
    for path, writer, _, shape, data in samples():
        kept.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        tensors[path] = safetensors.TensorSpec(
            dtype=writer, shape=shape, data_ptr=ctypes.addressof(kept[-1]), data_len=len(data)
        )
    safetensors.serialize_file(tensors, str(file), METADATA)


def main() -> int:
    helper, folder = sys.argv[1], Path(sys.argv[2])
    use_package(folder)
    with tempfile.TemporaryDirectory() as scratch:
        faults = check_ours(helper, Path(scratch) / "ours.safetensors")
        write_theirs(Path(scratch) / "theirs.safetensors")
        read = subprocess.run([helper, "check", str(Path(scratch) / "theirs.safetensors")])
        if read.returncode != 0:
            faults.append("Tendon reads the package's file otherwise")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
