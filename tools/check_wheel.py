#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks whether a wheel can be loaded on Debian 12 and on Ubuntu 24.04: symbol versions, libraries, licences, tag.

check_wheel.py WHEEL         prints each fault; exit code 1 if there is any
check_wheel.py --self-test   plants one fault of each kind and expects each to be reported; needs a C compiler

It runs nothing: a version that these systems have does not prove that the wheel works there.
tools/check_wheel_elsewhere.sh runs it on a Debian 12.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from notices import MISSING

# The newest version that both systems have: glibc 2.36 and 2.39, libstdc++ of g++ 12 and 14, OpenSSL 3.0.
NEWEST = {"GLIBC": "2.36", "GLIBCXX": "3.4.30", "CXXABI": "1.3.13", "GCC": "12.0.0", "OPENSSL": "3.0.9"}
# The libraries that both systems have, with Python. Everything else is in the wheel.
OF_SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|resolv|util)\.so\.\d|libstdc\+\+\.so\.6|libgcc_s\.so\.1|"
                       r"ld-linux-[a-z0-9-]+\.so\.\d|libcrypto\.so\.3|libssl\.so\.3)")
NEVER_INSIDE = re.compile(r"lib(crypto|ssl)[-.]")
NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")
WANTED = re.compile(r"Name: ([A-Z]+)_([0-9][0-9.]*)\b")
LICENCES = ("LICENSE", "THIRD_PARTY_NOTICES")
LIBRARY = re.compile(r"-[0-9a-f]{8}(?=\.)")


def number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def read_elf(option: str, file: Path) -> str:
    return subprocess.run(["readelf", "--wide", option, str(file)], check=True, capture_output=True, text=True,
                          env={"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"}).stdout


def faults_of(file: Path, name: str, inside: set[str]) -> list[str]:
    """Returns the faults of one ELF file; `inside`: the names of the libraries in the wheel."""
    faults = []
    # The versions that it needs, not those that it defines.
    needs = read_elf("-V", file).partition("Version needs section")[2]
    for library, version in sorted(set(WANTED.findall(needs))):
        if library in NEWEST and number(version) > number(NEWEST[library]):
            faults.append(f"{name} needs {library}_{version}; the oldest of the systems has {NEWEST[library]}")
    faults += [f"{name} needs {needed}, which is neither in the wheel nor on every system"
               for needed in NEEDED.findall(read_elf("-d", file))
               if needed not in inside and not OF_SYSTEM.fullmatch(needed)]
    return faults


def faults_in(wheel: Path) -> list[str]:
    faults = []
    if "-manylinux_" not in wheel.name:
        faults.append(f"{wheel.name}: the tag is for no other machine: it names no manylinux")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        elf = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
        inside = {path.name for path in elf}
        for path in elf:
            name = path.relative_to(folder).as_posix()
            if NEVER_INSIDE.match(path.name):
                faults.append(f"{name}: OpenSSL is in the wheel, out of reach of the system's security updates")
            faults += faults_of(path, name, inside)
        texts = {path.name: path.read_text(errors="replace") for path in files if ".dist-info/licenses/" in f"{path}"}
        faults += [f"the wheel has no {name}" for name in LICENCES if name not in texts]
        faults += [f"{name} lacks the text of a licence" for name, text in texts.items() if MISSING in text]
        bundled = texts.get("BUNDLED_LIBRARIES", "")
        faults += [f"{path.name} has no licence in the wheel" for path in elf
                   if path.parent.name.endswith(".libs") and LIBRARY.sub("", path.name) not in bundled]
    return faults


def self_test() -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        # A libc version that no system has, and a library that uses it.
        (folder / "new.c").write_text("int planted(void) { return 1; }\n")
        (folder / "new.map").write_text("GLIBC_2.99 { global: planted; };\n")
        (folder / "user.c").write_text("int planted(void);\nint user(void) { return planted(); }\n")
        compile_it = ["cc", "-shared", "-fPIC", "-nostdlib", "-o"]
        for command in ([*compile_it, "libnew.so", "new.c", "-Wl,-soname,libnew.so.1,--version-script,new.map"],
                        [*compile_it, "libcrypto-01234567.so.3", "new.c"],
                        [*compile_it, "_user.so", "user.c", "libnew.so"]):
            subprocess.run(command, cwd=folder, check=True)
        wheel = folder / "planted-1-py3-none-linux_x86_64.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(folder / "_user.so", "planted/_user.so")
            archive.write(folder / "libcrypto-01234567.so.3", "planted.libs/libcrypto-01234567.so.3")
            archive.writestr("planted.dist-info/licenses/BUNDLED_LIBRARIES", f"libelse.so.1\n{MISSING}\n")
        found = faults_in(wheel)
        expected = ["names no manylinux", "_user.so needs GLIBC_2.99", "_user.so needs libnew.so.1", "OpenSSL is in the wheel",
                    "no LICENSE", "no THIRD_PARTY_NOTICES", "libcrypto-01234567.so.3 has no licence",
                    "BUNDLED_LIBRARIES lacks the text of a licence"]
        for fault in expected:
            assert any(fault in one for one in found), f"not reported: {fault}; reported: {found}"
        assert len(found) == len(expected), found
    print(f"each of {len(expected)} planted faults was reported")


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    arguments = parser.parse_args()
    faults = faults_in(arguments.wheel)
    print("\n".join(faults) or f"{arguments.wheel.name}: its symbol versions, libraries and licences are in order for "
          "Debian 12 and Ubuntu 24.04 (read, not run)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
