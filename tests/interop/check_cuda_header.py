#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our declarations of the CUDA driver with cuda.h, of the oldest CUDA that Tendon works with and of a new one.

check_cuda_header.py COMPILER ROOT FOLDER    FOLDER keeps the packages that have the headers
check_cuda_header.py --self-test             plants declarations that cannot be compared

Each declaration of src/cuda/driver_types.hpp has CUDA's name in a comment behind it; `@12080` says from which CUDA on
there is one. A program is made of them that compares names, sizes, places and numbers when it is compiled, and the
functions of driver_functions.def with their parameters. Without the packages the exit code is 77: skipped.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = ["nvidia-cuda-runtime-cu12==12.0.146", "nvidia-cuda-runtime==13.0.96"]

BEHIND = r"\s*// (?P<theirs>[\w:()]+(?:\([\w:]+\))?)(?: @(?P<since>\d+))?$"
ALIAS = re.compile(r"^using (?P<ours>\w+) = .*;" + BEHIND)
CONSTANT = re.compile(r"^inline constexpr [\w:]+ (?P<ours>k\w+) = \d+;" + BEHIND)
OPENED = re.compile(r"^(?:enum class|struct) (?P<ours>\w+)(?: : \w+)? \{" + BEHIND)
ENUMERATOR = re.compile(r"^  (?P<ours>\w+) = -?\d+," + BEHIND)
FIELD = re.compile(r"^  [\w:<>*, ]+ (?P<ours>\w+);" + BEHIND)
DECLARES = re.compile(r"^(?:using|inline constexpr|enum class|struct|  \w.*[,;])")
FUNCTION = re.compile(r"^TENDON_CUDA_FUNCTION\((\w+), (\w+), (\d+), \(", re.MULTILINE)

BEGIN = """
// Old versions of functions are declared too.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>
#include <cstdio>
#include <type_traits>

#include "cuda/driver_table.hpp"

using namespace tendon::v0::detail::cuda;

template <class A, class B>
constexpr bool are_alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using To = std::remove_pointer_t<A>;
    using ToOther = std::remove_pointer_t<B>;
    return std::is_const_v<To> == std::is_const_v<ToOther> &&
           are_alike<std::remove_const_t<To>, std::remove_const_t<ToOther>>();
  } else if constexpr (std::is_class_v<A> || std::is_class_v<B>) {
    return std::is_class_v<A> && std::is_class_v<B>;  // what a handle points to has no size
  } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B);
  }
}

template <class A, class B>
struct Alike : std::false_type {};
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct Alike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<are_alike<R, S>() && (are_alike<A, B>() && ...)> {};

int main() {
  int faults = 0;
"""


def number_of(theirs: str) -> str:
    return f"static_cast<long long>((std::uintptr_t)({theirs}))"


def checks_of(header: str) -> tuple[list[str], list[str]]:
    """The statements that compare each declaration, and the lines that cannot be compared."""
    checks: list[str] = []
    faults: list[str] = []
    ours_type = theirs_type = ""
    since = None

    def add(statement: str, begins: str | None) -> None:
        begins = begins or since
        checks.extend([f"#if CUDA_VERSION >= {begins}", statement, "#endif"] if begins else [statement])

    for number, line in enumerate(header.splitlines(), 1):
        if line.startswith("}"):
            ours_type, since = "", None
        elif found := OPENED.match(line):
            ours_type, theirs_type, since = found["ours"], found["theirs"], found["since"]
            add(f'static_assert(sizeof({ours_type}) == sizeof({theirs_type}), "{theirs_type}");', since)
        elif found := ALIAS.match(line):
            add(f'static_assert(sizeof({found["ours"]}) == sizeof({found["theirs"]}) && '
                f'std::is_pointer_v<{found["ours"]}> == std::is_pointer_v<{found["theirs"]}>, "{found["theirs"]}");',
                found["since"])
        elif found := CONSTANT.match(line):  # some of theirs are pointers, which are no constants of the compiler
            add(f'if ({found["ours"]} != {number_of(found["theirs"])}) faults += std::puts("{found["theirs"]}") >= 0;',
                found["since"])
        elif ours_type and (found := ENUMERATOR.match(line)):
            add(f'static_assert(static_cast<long long>({ours_type}::{found["ours"]}) == '
                f'static_cast<long long>({found["theirs"]}), "{found["theirs"]}");', found["since"])
        elif ours_type and (found := FIELD.match(line)):
            ours, theirs = found["ours"], found["theirs"]
            place = ".".join((theirs_type, theirs))
            add("{ [[maybe_unused]] " + f"typedef {theirs_type} Theirs; "
                f'static_assert(offsetof({ours_type}, {ours}) == offsetof(Theirs, {theirs}) && '
                f'sizeof({ours_type}::{ours}) == sizeof(Theirs::{theirs}), "{place}"); ' + "}", found["since"])
        elif DECLARES.match(line):
            faults.append(f"src/cuda/driver_types.hpp:{number}: no name of CUDA is behind this: {line.strip()}")
    return checks, faults


def program_of(header: str, functions: str) -> tuple[str, list[str]]:
    checks, faults = checks_of(header)
    for field, exported, since in FUNCTION.findall(functions):
        checks += [f"#if CUDA_VERSION >= {since}",
                   f'static_assert(Alike<decltype(&::{exported}), decltype(DriverTable::{field})>::value, "{exported}");',
                   "#endif"]
    return BEGIN + "\n".join(checks) + "\n  return faults == 0 ? 0 : 1;\n}\n", faults


def header_of(package: str, folder: Path) -> Path:
    """The folder of cuda.h; leaves the test as skipped where the package cannot be had."""
    place = folder / package.replace("==", "-")
    found = list(place.glob("nvidia/**/include/cuda.h"))
    if found:
        return found[0].parent
    python = folder / "venv" / "bin" / "python"
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder / "venv")],
                    [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary",
                     ":all:", "--no-deps", "--retries", "2", "--timeout", "10", "--dest", str(place), package]):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            last = (made.stderr.strip() or made.stdout.strip() or "no output").splitlines()[-1]
            print(f"check_cuda_header.py: Skipped\n{package} cannot be had: {last}")
            sys.exit(77)
    for wheel in place.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(place)
        wheel.unlink()
    return next(place.glob("nvidia/**/include/cuda.h")).parent


def compare(compiler: str, root: Path, program: Path, package: str, include: Path) -> list[str]:
    binary = program.with_suffix("")
    made = subprocess.run([compiler, "-std=c++20", "-w", f"-I{root}/src", "-isystem", str(include), "-o", str(binary),
                           str(program)], capture_output=True, text=True)
    if made.returncode != 0:
        told = [line for line in made.stderr.splitlines() if "error" in line] or [made.stderr]
        return [f"{package}: {line}" for line in told]
    ran = subprocess.run([str(binary)], capture_output=True, text=True)
    return [] if ran.returncode == 0 else [f"{package}: another number than ours: {ran.stdout.strip()}"]


def self_test() -> None:
    good = ("using A = int;  // CUdevice\nusing B = struct B_*;  // CUcontext\n"
            "inline constexpr unsigned kC = 1;  // CU_C\nenum class D : int {  // CUd\n  e = 0,  // CU_E @12080\n};\n"
            "struct F {  // decltype(G::h)\n  std::array<char, 4> i;  // j\n};\n")
    checks, faults = checks_of(good)
    assert not faults, faults
    assert sum(check.startswith(("static_assert", "if", "{")) for check in checks) == 7, checks
    assert "#if CUDA_VERSION >= 12080" in checks
    planted = ("using A = int;\n", "enum class D : int {\n", "enum class D : int {  // CUd\n  e = 0,\n};\n",
               "struct F {  // CUf\n  int i;\n};\n", "inline constexpr unsigned kC = 1;\n")
    for text in planted:
        assert len(checks_of(text)[1]) >= 1, text
    print(f"each of {len(planted)} planted faults was reported")


def main() -> int:
    if "--self-test" in sys.argv:
        self_test()
        return 0
    compiler, root, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    text, faults = program_of((root / "src/cuda/driver_types.hpp").read_text(),
                              (root / "src/cuda/driver_functions.def").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "cuda_header.cpp"
    program.write_text(text)
    for package in PACKAGES:
        faults += compare(compiler, root, program, package, header_of(package, folder))
    print("\n".join(faults) if faults else f"our declarations are those of {' and '.join(PACKAGES)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
