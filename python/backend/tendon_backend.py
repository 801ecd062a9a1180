# SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core, with a check of the machine before it and auditwheel after it.

pyproject.toml requires nothing, so pip calls this file before it downloads anything. If something is missing, the build
ends
with one line that names all of it. Before and after the build, a message says what the wheel will lack.

Config settings (`pip install . --config-settings tendon.repair=false`), each true by default:
tendon.check    look for the compiler, tools and libraries first
tendon.repair   put libraries of this machine except OpenSSL into the wheel, and tag it for the oldest system it runs on
All other settings are passed to scikit-build-core.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Union

Settings = Union[dict, None]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# The build uses the modules of tools/; pip imports this file alone.
sys.path.insert(0, str(ROOT / "tools"))
import debian_packages  # noqa: E402

# How a build finds the contents of a package: by a program or by a header. A package in neither table is not looked
# for.
PROGRAMS = {"cmake": ["cmake"], "ninja-build": ["ninja", "ninja-build"], "protobuf-compiler": ["protoc"],
            "pkg-config": ["pkg-config", "pkgconf"], "g++": ["c++", "g++", "clang++"]}
HEADERS = {"libssl-dev": "openssl/evp.h", "libhwy-dev": "hwy/highway.h", "nlohmann-json3-dev": "nlohmann/json.hpp",
           "libcli11-dev": "CLI/CLI.hpp", "libfmt-dev": "fmt/format.h", "libzmq3-dev": "zmq.h", "cppzmq-dev": "zmq.hpp",
           "libprotobuf-dev": "google/protobuf/message_lite.h", "python3-dev": "Python.h"}
# Parts that a wheel may lack: their name, the group of packages that they need, and the CMake variable that decides.
PARTS = {"control": ("the control plane", "TENDON_CONTROL"), "zenoh": ("discovery by Zenoh", "TENDON_ZENOH")}
# Libraries that the wheel takes from the system it runs on. OpenSSL gets its security updates there.
NOT_BUNDLED = ["libcrypto.so.*", "libssl.so.*"]
# The build time on two idle cores.
MINUTES = 5
MINUTES_OF_ZENOH = 5


def stop(line: str) -> NoReturn:
    """Ends the build with this line: pip shows printed text, which a traceback would hide."""
    sys.stdout.flush()
    sys.exit(f"tendon: {line}")


def tell(line: str) -> None:
    """Prints to the terminal, as pip hides a build's output; to stderr without a terminal, or if pip runs in the
    background.
    """
    try:
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        terminal = -1
    try:
        if terminal >= 0 and os.tcgetpgrp(terminal) == os.getpgrp():
            os.write(terminal, f"\r\ntendon: {line}\r\n".encode())
        else:
            print(f"tendon: {line}", file=sys.stderr, flush=True)
    except OSError:
        print(f"tendon: {line}", file=sys.stderr, flush=True)
    finally:
        if terminal >= 0:
            os.close(terminal)


@dataclass
class Ours:
    """The config settings that this backend reads itself."""

    check: bool = True
    repair: bool = True


def divide(settings: Settings) -> tuple[Ours, dict]:
    ours = Ours()
    others = {}
    for name, value in (settings or {}).items():
        if not name.startswith("tendon."):
            others[name] = value
        elif name.removeprefix("tendon.") not in vars(ours) or str(value).lower() not in ("true", "false"):
            stop(f"the config setting '{name}={value}' is unknown; there are "
                 + " and ".join(f"tendon.{one}=true|false" for one in vars(ours)))
        else:
            setattr(ours, name.removeprefix("tendon."), str(value).lower() == "true")
    return ours, others


def packages_of(group: str) -> list[str]:
    return debian_packages.packages_of(ROOT, group)


def compiler() -> str | None:
    """The compiler, found as CMake finds it."""
    return next((found for name in [*os.environ.get("CXX", "").split()[:1], *PROGRAMS["g++"]]
                 if (found := shutil.which(name))), None)


def absent_headers(headers: list[str]) -> set[str]:
    """The headers that the compiler finds neither by default nor below CMAKE_PREFIX_PATH."""
    roots = [root for name in ("CMAKE_PREFIX_PATH", "CONDA_PREFIX") for root in os.environ.get(name, "").split(":") if root]
    folders = [sysconfig.get_path("include"), *(f"{root}/include" for root in roots)]
    command = compiler()
    if command is None:
        folders += ["/usr/include", "/usr/local/include"]
        return {header for header in headers if not any(Path(folder, header).exists() for folder in folders)}
    source = "\n".join(f"#if !__has_include(<{header}>)\nabsent {header}\n#endif" for header in headers)
    answer = subprocess.run([command, "-std=c++20", "-E", "-P", "-x", "c++", *(f"-I{folder}" for folder in folders), "-"],
                            input=source, check=False, capture_output=True, text=True)
    return {line.removeprefix("absent ") for line in answer.stdout.splitlines() if line.startswith("absent ")}


def missing(packages: list[str]) -> list[str]:
    """The packages whose contents a build would not find."""
    absent = absent_headers([HEADERS[package] for package in packages if package in HEADERS])
    found = []
    for package in packages:
        if package == "g++":
            lacks = compiler() is None
        elif package in PROGRAMS:
            lacks = not any(shutil.which(program) for program in PROGRAMS[package])
        else:
            lacks = HEADERS.get(package) in absent
        if lacks:
            found.append(package)
    return found


def cargo() -> str | None:
    """The cargo that builds the crate of Zenoh."""
    answer = subprocess.run(["bash", str(ROOT / "tools/find_cargo.sh")], check=False, capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else None


def command_for(packages: list[str]) -> str:
    """The command that installs these packages on this machine."""
    if shutil.which("apt-get") is None:
        return f"the packages of this system that Debian calls {' '.join(packages)}"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


@dataclass
class Machine:
    """The build tools that this machine has."""

    needed: list[str]  # packages that every build needs
    lacks: dict[str, list[str]]  # by part of the wheel: the packages that the part needs and the machine lacks
    asked_for: list[str]  # the parts that are not switched off
    cargo: str | None


def look(others: dict) -> Machine:
    needed = missing(packages_of("wheel"))
    lacks = {}
    asked_for = []
    found = None
    for part, (_, variable) in PARTS.items():
        wish = str(others.get(f"cmake.define.{variable}", "AUTO")).upper()
        if wish == "OFF":
            continue
        asked_for.append(part)
        if part == "zenoh":
            found = cargo()
            absent = [] if found else packages_of(part)
        else:
            absent = missing(packages_of(part))
        if wish == "ON":
            needed += absent
        elif absent:
            lacks[part] = absent
    return Machine(needed, lacks, asked_for, found)


def without(part: str) -> str:
    return f"without {PARTS[part][0]}"


def check(machine: Machine) -> None:
    """Ends a build that cannot succeed, with one line."""
    if machine.needed:
        packages = [*machine.needed, *(package for absent in machine.lacks.values() for package in absent)]
        optional = "; ".join(f"for a wheel {without(part)}, leave out {' '.join(absent)}" for part, absent in machine.lacks.items())
        stop(f"packages are missing; install them, then run pip again: {command_for(packages)}"
             + (f" ({optional})" if optional else ""))
    wanted = re.search(r"cmake_minimum_required\(VERSION ([0-9.]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
    said = subprocess.run(["cmake", "--version"], check=False, capture_output=True, text=True).stdout
    version = re.search(r"[0-9]+\.[0-9]+", said)
    if version and [int(part) for part in version[0].split(".")] < [int(part) for part in wanted.split(".")]:
        stop(f"{shutil.which('cmake')} is CMake {version[0]}, and the build needs {wanted}: pip install cmake, "
             "then run pip again")


def crate_is_there(found: str) -> bool:
    try:
        answer = subprocess.run([sys.executable, str(ROOT / "tools/zenoh_crate.py"), "path", found], check=True,
                                capture_output=True, text=True)
    except subprocess.CalledProcessError:
        return False
    return Path(answer.stdout.strip()).exists()


def announce(machine: Machine) -> None:
    whole = [PARTS[part][0] for part in machine.asked_for if part not in machine.lacks]
    line = f"building the library, the command and the Python module{', with ' + ' and '.join(whole) if whole else ''}: "
    line += f"about {MINUTES} minutes on two cores"
    if machine.cargo and not crate_is_there(machine.cargo):
        line += f", and once {MINUTES_OF_ZENOH} more for the crate of Zenoh, whose sources are downloaded (20 MB)"
    tell(line)
    for part, absent in machine.lacks.items():
        tell(f"the wheel will be {without(part)}; to have it: {command_for(absent)}, then run pip again")


def requirements(*names: str) -> list[str]:
    lines = [line.strip() for name in names for line in (HERE / name).read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def prepare(settings: Settings) -> tuple[Ours, dict, Machine]:
    ours, others = divide(settings)
    machine = look(others)
    if ours.check:
        check(machine)
    return ours, others, machine


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    ours, _, _ = prepare(config_settings)
    return requirements("requirements.txt", *(["repair_requirements.txt"] if ours.repair else []))


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    prepare(config_settings)
    return requirements("requirements.txt")


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    divide(config_settings)
    return [line for line in requirements("requirements.txt") if line.startswith("scikit-build-core")]


def scikit_build():
    try:
        import scikit_build_core.build
    except ModuleNotFoundError as fault:
        stop(f"there is no {fault.name}: pip install -r python/backend/requirements.txt, or leave --no-build-isolation out")
    return scikit_build_core.build


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    return scikit_build().prepare_metadata_for_build_wheel(metadata_directory, divide(config_settings)[1])


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    return scikit_build().prepare_metadata_for_build_editable(metadata_directory, divide(config_settings)[1])


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    return scikit_build().build_sdist(sdist_directory, divide(config_settings)[1])


def with_cargo(others: dict, machine: Machine) -> dict:
    """CMake takes the first cargo of PATH, which may be too old."""
    variable = "cmake.define.TENDON_CARGO"
    if machine.cargo and machine.cargo != shutil.which("cargo") and variable not in others:
        return {**others, variable: machine.cargo}
    return others


def compile_wheel(build, folder: str, settings: Settings, metadata_directory: str | None) -> tuple[Ours, Path, Machine]:
    """`build` is a hook of scikit-build-core."""
    ours, others, machine = prepare(settings)
    announce(machine)
    try:
        name = build(folder, with_cargo(others, machine), metadata_directory)
    except SystemExit:
        stop("the build failed; its first error is above. It is tried with the packages of Debian 12: "
             f"{' '.join(packages_of('wheel') + packages_of('control'))}; others may be too old")
    wheel = Path(folder) / name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        notices = b"".join(archive.read(one) for one in names if one.endswith("THIRD_PARTY_NOTICES"))
    has = {"control": any(fnmatch.fnmatch(one, "tendon/_control*.so") for one in names),
           "zenoh": b"\nzenoh-" in notices}
    for part in machine.asked_for:
        if not has[part] and part not in machine.lacks:
            tell(f"the wheel is {without(part)}, although its packages are here: `tendon info` says why; "
                 f"--config-settings cmake.define.{PARTS[part][1]}=ON makes that an error")
    return ours, wheel, machine


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    _, wheel, _ = compile_wheel(scikit_build().build_editable, wheel_directory, config_settings, metadata_directory)
    return wheel.name


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    build = scikit_build().build_wheel
    if divide(config_settings)[0].repair and importlib.util.find_spec("auditwheel") is None:
        stop("there is no auditwheel: pip install -r python/backend/repair_requirements.txt, or build for this machine "
             "alone, --config-settings tendon.repair=false")
    with tempfile.TemporaryDirectory() as folder:
        ours, wheel, _ = compile_wheel(build, folder, config_settings, metadata_directory)
        if ours.repair:
            wheel = repair(wheel, Path(folder) / "repaired")
        shutil.copy(wheel, wheel_directory)
    return wheel.name


def audit(wheel: Path, output: Path, compression: int) -> Path:
    """The repaired wheel that auditwheel makes from `wheel`."""
    output.mkdir()
    scripts = sysconfig.get_path("scripts")
    command = [sys.executable, "-m", "auditwheel", "repair", "--zip-compression-level", str(compression),
               "--wheel-dir", str(output)]
    # The package's second module links its first one.
    for pattern in [*NOT_BUNDLED, "_tendon.*so"]:
        command += ["--exclude", pattern]
    answer = subprocess.run([*command, str(wheel)], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env={**os.environ, "PATH": f"{scripts}:{os.environ.get('PATH', '')}"})
    made = list(output.glob("*.whl"))
    if answer.returncode != 0 or len(made) != 1:
        print(answer.stdout, file=sys.stderr)
        stop("auditwheel could not make a wheel for other machines, see above; for this one alone: "
             "--config-settings tendon.repair=false")
    return made[0]


def repair(wheel: Path, output: Path) -> Path:
    """Repairs twice: the libraries of the first result decide which licences the second one contains."""
    import notices

    output.mkdir()
    with zipfile.ZipFile(audit(wheel, output / "first", 0)) as archive:
        # "libpgm-5-1a2b3c4d.3.so.0" was "libpgm-5.3.so.0".
        bundled = [re.sub(r"-[0-9a-f]{8}(?=\.)", "", Path(name).name)
                   for name in archive.namelist() if ".libs/" in name and ".so" in name]
    places = {Path(place).resolve().name: place for place in linked(wheel)}
    text = notices.notices([(name, Path(places.get(name, name))) for name in sorted(bundled)])
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
        folder = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        archive.writestr(f"{folder}/licenses/BUNDLED_LIBRARIES", "The libraries in pytendon.libs, and their licences.\n\n"
                         + text)
    made = audit(wheel, output / "second", 6)
    tell(f"{made.name} has in it {', '.join(sorted(bundled))}; OpenSSL is the system's")
    return made


def linked(wheel: Path) -> list[str]:
    """The paths of the libraries that the wheel's programs and modules load on this machine."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        files = [str(path) for path in Path(folder).rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        for file in files:
            os.chmod(file, 0o755)
        answer = subprocess.run(["ldd", *files], check=False, capture_output=True, text=True).stdout
    return re.findall(r"=> (/\S+) \(0x", answer)
