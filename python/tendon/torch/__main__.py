# SPDX-License-Identifier: Apache-2.0
"""`python -m tendon.torch build`: compiles the extension of the backend "tendon" against torch."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from . import _extension


def build(into: Path | None, force: bool) -> Path:
    import torch

    name = _extension.file_name()
    if not force:
        for place in [into] if into is not None else _extension.places():
            if (place / name).exists():
                return place / name
    compiler = next((found for one in (os.environ.get("CXX", ""), "c++", "g++", "clang++")
                     if one and (found := shutil.which(one))), None)
    if compiler is None:
        sys.exit("tendon.torch: there is no C++ compiler; install one (Debian: apt install g++), or set CXX")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        sys.exit("tendon.torch: there is no Python.h; install Python's headers (Debian: apt install python3-dev)")
    folder = into if into is not None else next(filter(_is_writable, _extension.places()), None)
    if folder is None:
        sys.exit("tendon.torch: neither the package nor the cache of the user may be written; give --into FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    headers = Path(torch.__file__).parent / "include"
    libraries = Path(torch.__file__).parent / "lib"
    print(f"tendon.torch: compiling against torch {torch.__version__}; it takes about a minute", flush=True)
    # Another process that loads it meanwhile sees the whole file or none.
    with tempfile.TemporaryDirectory(dir=folder) as made:
        output = Path(made) / name
        subprocess.run(
            [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall",
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
             f"-isystem{headers}", f"-isystem{headers / 'torch' / 'csrc' / 'api' / 'include'}",
             f"-isystem{sysconfig.get_path('include')}",
             str(_extension.SOURCES / "extension.cpp"), "-o", str(output),
             f"-L{libraries}", "-ltorch_python", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{libraries}"],
            check=True)
        output.rename(folder / name)
    return folder / name


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tendon.torch", description=__doc__)
    parser.add_argument("verb", choices=["build", "where"], help="compile it, or say which file serves")
    parser.add_argument("--into", type=Path, help="a folder; the package's own by default, else the user's cache")
    parser.add_argument("--force", action="store_true", help="compile it also where it exists")
    asked = parser.parse_args()
    if asked.verb == "where":
        extension, why_not = _extension.load()
        print(f"the backend in Python serves: {why_not}" if extension is None else extension.__file__)
        return
    try:
        print(build(asked.into, asked.force))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"tendon.torch: the compiler ended with {failed.returncode}; its errors are above")


if __name__ == "__main__":
    main()
