#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes src/cuda/gather_ptx.hpp from src/cuda/gather.cu, and lets ptxas assemble it for each kind of GPU.

make_gather_ptx.py [ROOT]    keeps the compilers in ROOT/build/gather_ptx; no GPU and no driver is needed

The compiler is NVRTC of CUDA 12.0, so that the oldest driver that Tendon supports knows the version of the PTX.
Later drivers translate it for their GPUs too. tests/interop/check_gather_ptx.py tells when to run this again.
"""

import ctypes
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

SOURCES = ("src/cuda/gather.cu", "src/cuda/gather_table.hpp")
MADE = "src/cuda/gather_ptx.hpp"
NVRTC = "nvidia-cuda-nvrtc-cu12==12.0.140"
OPTIONS = ("--gpu-architecture=compute_70", "--std=c++17")
# Packages with ptxas, and the kinds of GPUs that each supports and the PTX can run on.
ASSEMBLERS = {"nvidia-cuda-nvcc-cu12==12.0.140": (70, 72, 75, 80, 86, 87, 89, 90),
              "nvidia-cuda-nvcc==13.0.88": (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)}

HEADER = """// SPDX-License-Identifier: Apache-2.0
// Made by tools/make_gather_ptx.py of gather.cu; sha256 of what it was made of:
// {digest}
#pragma once

namespace tendon::v0::detail::cuda {{

inline constexpr const char* kGatherKernel = "tendon_gather";
inline constexpr const char* kGatherPtx = R"ptx(
{ptx})ptx";

}}  // namespace tendon::v0::detail::cuda
"""


def digest_of(root: Path) -> str:
    """Returns the digest of the sources that a header made from them contains."""
    return hashlib.sha256(b"".join((root / source).read_bytes() for source in SOURCES)).hexdigest()


def package(name: str, folder: Path) -> Path:
    """Downloads the package if necessary, and returns the folder of its files."""
    place = folder / name.replace("==", "-")
    if not list(place.glob("nvidia")):
        python = folder / "venv" / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary",
                        ":all:", "--no-deps", "--dest", str(place), name], check=True)
        for wheel in place.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(place)
            wheel.unlink()
    return place


def compiled(root: Path, nvrtc: Path) -> str:
    library = ctypes.CDLL(str(next(nvrtc.glob("nvidia/**/libnvrtc.so.*"))))
    program = ctypes.c_void_p()

    def call(name: str, *arguments: object) -> None:
        if (status := getattr(library, name)(*arguments)) != 0:
            sys.exit(f"{name} answered {status}")

    def text(what: str) -> str:
        size = ctypes.c_size_t()
        call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def strings(*values: bytes) -> ctypes.Array:
        return (ctypes.c_char_p * len(values))(*values)

    kernel, header = ((root / source).read_bytes() for source in SOURCES)
    call("nvrtcCreateProgram", ctypes.byref(program), kernel, b"gather.cu", 1, strings(header),
         strings(SOURCES[1].removeprefix("src/").encode()))
    status = library.nvrtcCompileProgram(program, len(OPTIONS), strings(*(option.encode() for option in OPTIONS)))
    log = text("ProgramLog").strip()
    if status != 0 or log:
        sys.exit(log or f"nvrtcCompileProgram answered {status}")
    return text("PTX")


def tidied(ptx: str) -> str:
    """Removes comments and the sources' constants: ptxas would report one that an instruction reads."""
    lines = (re.sub(r"\s*//.*", "", line).rstrip() for line in ptx.splitlines())
    return "".join(("  " if line[0].isspace() else "") + " ".join(line.split()) + "\n"
                   for line in lines if line and not line.startswith(".global"))


def assemble(ptx: str, folder: Path) -> None:
    file = folder / "gather.ptx"
    file.write_text(ptx)
    for name, kinds in ASSEMBLERS.items():
        ptxas = next(package(name, folder).glob("nvidia/**/bin/ptxas"))
        ptxas.chmod(0o755)
        for kind in kinds:
            subprocess.run([str(ptxas), "--warning-as-error", f"--gpu-name=sm_{kind}", "--output-file",
                            str(folder / "gather.cubin"), str(file)], check=True)
        print(f"ptxas of {name} assembles it for sm_{', sm_'.join(map(str, kinds))}")


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    folder = root / "build" / "gather_ptx"
    folder.mkdir(parents=True, exist_ok=True)
    ptx = tidied(compiled(root, package(NVRTC, folder)))
    assemble(ptx, folder)
    (root / MADE).write_text(HEADER.format(digest=digest_of(root), ptx=ptx))
    return 0


if __name__ == "__main__":
    sys.exit(main())
