#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds rust/tendon-zenoh, once for each state of its sources, of its list of crates and of the compiler.

zenoh_crate.py path CARGO             prints the present or future path of the archive
zenoh_crate.py fetch CARGO            downloads its dependencies, if they are missing
zenoh_crate.py build CARGO            builds it if it is missing
zenoh_crate.py --write CARGO_LOCK     makes the list of crates from a Cargo.lock
zenoh_crate.py --self-test            plants faults in a list and expects each to be reported

`--profile quick` builds it in half of the time and does not optimise it; the default is `release` (Cargo.toml).

The list, crates.txt, has a line for each crate: name, version, SHA-256 ("-" for our own), and its dependencies, as
`name`, or `name@version` if the list has several versions. It is converted to a Cargo.lock in the build folder, which
also names the registry: cargo is asked for the name of the one that it uses.

The other outputs of cargo, half a gigabyte, are deleted with the build. If CARGO_TARGET_DIR names a folder, they
stay there: a change of our own sources then takes seconds.

Beside the archive lies NOTICES, the texts that the licences of its crates require to be passed on with it.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent / "rust/tendon-zenoh"
LIST = "crates.txt"
ARCHIVE = "libtendon_zenoh.a"
NOTICES = "notices.txt"
# Names of the licence files in packages of crates.
LICENCE_FILES = ("LICEN[CS]E*", "COPYING*", "COPYRIGHT*", "NOTICE*", "UNLICENSE*", "LICENSES/*", "licenses/*")
WORK = "work_"
OURS = "-"
# A crate with neither dependencies nor a build script, used for questions to cargo.
PROBE = "bytes"
HEAD = """\
# The crates that rust/tendon-zenoh is built of: name, version, SHA-256, dependencies. Made by
# `tools/zenoh_crate.py --write Cargo.lock`, whose text says more.
"""
NAME = re.compile(r"[A-Za-z0-9_-]+")
VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.+-]*")
SUM = re.compile(r"[0-9a-f]{64}")


class BadList(Exception):
    """A fault of a list, with its place."""


@dataclass
class Crate:
    name: str
    version: str
    checksum: str
    depends: list[str]  # as in Cargo.lock: "name" or "name version"


def read_list(text: str) -> list[Crate]:
    crates = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        parts = line.split()
        if len(parts) < 3:
            raise BadList(f"{LIST}:{number}: not 'name version checksum dependencies...'")
        name, version, checksum = parts[:3]
        depends = [part.replace("@", " ") for part in parts[3:]]
        if not NAME.fullmatch(name) or not VERSION.fullmatch(version):
            raise BadList(f"{LIST}:{number}: not a name and a version")
        if checksum != OURS and not SUM.fullmatch(checksum):
            raise BadList(f"{LIST}:{number}: {name} has no SHA-256")
        crates.append(Crate(name, version, checksum, depends))
    known = [crate.name for crate in crates]
    exact = {f"{crate.name} {crate.version}" for crate in crates}
    for crate in crates:
        for depends in crate.depends:
            if depends not in exact and known.count(depends) != 1:
                raise BadList(f"{LIST}: {crate.name} depends on {depends}, of which it has not just one")
    return crates


def list_of(lock: dict) -> str:
    lines = []
    for package in lock["package"]:
        checksum = package.get("checksum", OURS)
        # A third word names a registry; there is only one.
        depends = ["@".join(one.split()[:2]) for one in package.get("dependencies", [])]
        lines.append(" ".join([package["name"], package["version"], checksum, *depends]))
    return HEAD + "\n".join(lines) + "\n"


def licences_in(folder: Path) -> list[Path]:
    return sorted({file for pattern in LICENCE_FILES for file in folder.glob(pattern) if file.is_file()})


def notices_of(linked: list[tuple[str, str, list[Path]]]) -> str:
    """Formats a line for each crate, and each of their texts once; `linked`: name, licence, texts of each."""
    rows = []
    texts: dict[str, tuple[str, list[str]]] = {}
    for name, licence, files in sorted(linked):
        rows.append(f"{name}: {licence.strip() or 'see below'}" + ("" if files else " (no text in its package)"))
        for file in files:
            text = file.read_text(errors="replace").strip()
            texts.setdefault(" ".join(text.split()), (text, []))[1].append(f"{name}, {file.name}")
    line = "-" * 100
    parts = [f"{line}\nThe crates in {ARCHIVE}\n{line}\n\n" + "\n".join(rows) + "\n"]
    parts += ["\n".join([line, *places, line, "", text, ""]) for text, places in texts.values()]
    return "\n".join(parts)


def lock_of(crates: list[Crate], source: str) -> str:
    parts = ["# Written by tools/zenoh_crate.py.\nversion = 4\n"]
    for crate in crates:
        lines = ["[[package]]", f'name = "{crate.name}"', f'version = "{crate.version}"']
        if crate.checksum != OURS:
            lines += [f'source = "{source}"', f'checksum = "{crate.checksum}"']
        if crate.depends:
            lines += ["dependencies = [", *(f' "{one}",' for one in crate.depends), "]"]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


class Builder:
    """Builds with one cargo, in the user's cache."""

    def __init__(self, cargo: str, profile: str = "release") -> None:
        self.cargo = cargo
        self.profile = profile
        # The rustc of the same toolchain, even if PATH has another one first.
        beside = Path(cargo).with_name("rustc")
        self.rustc = str(beside if beside.exists() else shutil.which("rustc"))
        self.environment = {**os.environ, "RUSTC": self.rustc}
        self.target = os.environ.get("CARGO_TARGET_DIR")
        for name in ("CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"):
            self.environment.pop(name, None)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.folder = cache / "tendon/zenoh" / self.state()
        self.archive = self.folder / ARCHIVE

    def compiler(self) -> str:
        return subprocess.run([self.rustc, "-vV"], check=True, capture_output=True, text=True).stdout

    def host(self) -> str:
        return re.search(r"^host: (\S+)$", self.compiler(), re.MULTILINE)[1]

    def state(self) -> str:
        digest = hashlib.sha256((self.profile + self.compiler()).encode())
        for file in [*self.sources(), Path(__file__)]:
            text = file.read_bytes()
            digest.update(f"{file.name} {len(text)}\n".encode() + text)
        return digest.hexdigest()[:16]

    @staticmethod
    def sources() -> list[Path]:
        return [CRATE / "Cargo.toml", CRATE / LIST, *sorted((CRATE / "src").glob("*.rs"))]

    def run(self, *arguments: str, **options) -> None:
        subprocess.run([self.cargo, *arguments], check=True, env=self.environment, **options)

    def source_of_crates(self, crates: list[Crate]) -> str:
        """Returns cargo's name of its registry in a Cargo.lock."""
        version = next(crate.version for crate in crates if crate.name == PROBE)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "src").mkdir()
            (Path(folder) / "src/lib.rs").touch()
            (Path(folder) / "Cargo.toml").write_text(
                f'[package]\nname = "probe"\nversion = "0.0.0"\n[dependencies]\n{PROBE} = "={version}"\n[workspace]\n')
            self.run("generate-lockfile", "--quiet", cwd=folder)
            lock = tomllib.loads((Path(folder) / "Cargo.lock").read_text())
        return next(package["source"] for package in lock["package"] if package["name"] == PROBE)

    def fetch(self) -> None:
        if self.archive.exists():
            return
        with tempfile.TemporaryDirectory() as work:
            self.fetch_in(Path(work))

    def build(self) -> None:
        if self.archive.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # A concurrent build waits, and finds the result of the first. The kernel releases the lock of a dead one.
        with open(self.folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.archive.exists():
                return
            for left in self.folder.glob(f"{WORK}*"):  # of a killed build
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=WORK) as work:
                made = self.build_in(Path(work))
                # Before the archive, whose existence means that everything is complete.
                (self.folder / NOTICES).write_text(self.notices_in(Path(work)))
                shutil.copy(made, Path(work) / ARCHIVE)
                os.replace(Path(work) / ARCHIVE, self.archive)

    def fetch_in(self, work: Path) -> None:
        crates = read_list((CRATE / LIST).read_text())
        (work / "src").mkdir()
        for file in self.sources():
            shutil.copy(file, work / file.relative_to(CRATE))
        (work / "Cargo.lock").write_text(lock_of(crates, self.source_of_crates(crates)))
        self.run("fetch", "--locked", "--target", self.host(), cwd=work)

    def build_in(self, work: Path) -> Path:
        self.fetch_in(work)
        target = Path(self.target).resolve() if self.target else work / "target"
        # Panic messages contain file names: removes this machine's paths. Our own are relative already.
        home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
        hidden = [*sorted((home / "registry/src").glob("*")), target]
        self.environment["RUSTFLAGS"] = " ".join(f"--remap-path-prefix={path}=" for path in hidden)
        self.environment["CFLAGS"] = " ".join(f"-ffile-prefix-map={path}=" for path in hidden)
        self.run("build", "--profile", self.profile, "--locked", "--offline", "--target-dir", str(target), cwd=work)
        return target / self.profile / ARCHIVE

    def notices_in(self, work: Path) -> str:
        listed = subprocess.run(
            [self.cargo, "tree", "--locked", "--offline", "--edges", "normal,no-proc-macro", "--target", self.host(),
             "--prefix", "none", "--format", "{p}\t{l}"],
            check=True, env=self.environment, cwd=work, capture_output=True, text=True).stdout
        home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
        linked = {}
        for line in listed.splitlines():
            place, _, licence = line.removesuffix(" (*)").partition("\t")
            name, version = place.split()[:2]
            name = f"{name}-{version.removeprefix('v')}"
            folder = next((home / "registry/src").glob(f"*/{name}"), None)
            if folder is not None:  # not our own
                linked[name] = (name, licence, licences_in(folder))
        # The archive contains the standard library of Rust too.
        root = Path(subprocess.run([self.rustc, "--print", "sysroot"], check=True, capture_output=True, text=True,
                                   env=self.environment).stdout.strip())
        # In the layout of rustup, or of Debian.
        texts = [root / "share/doc/rust/licenses" / name for name in ("Apache-2.0.txt", "MIT.txt")]
        texts += root.glob("share/doc/libstd-rust*/copyright")
        linked["std"] = ("Rust's standard library", "MIT OR Apache-2.0", [text for text in texts if text.exists()])
        return notices_of(list(linked.values()))


def self_test() -> None:
    good = f"{HEAD}a 1.0.0 - b c@2.0.0\nb 0.1.0 {'0' * 64}\nc 1.0.0 {'1' * 64}\nc 2.0.0 {'2' * 64} b\n"
    lock = lock_of(read_list(good), "registry+somewhere")
    assert list_of(tomllib.loads(lock)) == good, lock
    bad = [
        ("a 1.0.0\n", "not 'name version"),
        ("a one -\n", "not a name and a version"),
        ('a" 1.0.0 -\n', "not a name and a version"),
        ("b 1.0.0 123\n", "b has no SHA-256"),
        ("a 1.0.0 - b\n", "depends on b"),
        (f"a 1.0.0 - c\nc 1.0.0 {'1' * 64}\nc 2.0.0 {'2' * 64}\n", "depends on c"),
        (f"a 1.0.0 - c@3.0.0\nc 1.0.0 {'1' * 64}\n", "depends on c 3.0.0"),
    ]
    for text, fault in bad:
        try:
            read_list(text)
        except BadList as found:
            assert fault in str(found), f"{text!r}: {found}"
        else:
            raise AssertionError(f"not reported: {text!r}")
    with tempfile.TemporaryDirectory() as work:
        for name in ("a", "b", "silent"):
            (Path(work) / name).mkdir()
            if name != "silent":
                (Path(work) / name / "LICENSE").write_text("the same text\n")
        text = notices_of([(name, "MIT", licences_in(Path(work) / name)) for name in ("a", "b", "silent")])
        assert text.count("the same text") == 1 and "b, LICENSE" in text, text
        assert "silent: MIT (no text in its package)" in text, text
    print(f"each of {len(bad)} planted faults was reported")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=["path", "fetch", "build"])
    parser.add_argument("cargo", nargs="?")
    parser.add_argument("--profile", choices=["release", "quick"], default="release")
    parser.add_argument("--write", metavar="CARGO_LOCK", type=Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
    elif arguments.write:
        text = list_of(tomllib.loads(arguments.write.read_text()))
        read_list(text)
        (CRATE / LIST).write_text(text)
    elif arguments.cargo:
        builder = Builder(arguments.cargo, arguments.profile)
        if arguments.verb == "build":
            builder.build()
        elif arguments.verb == "fetch":
            builder.fetch()
        else:
            print(builder.archive)
    else:
        parser.error("a verb and the cargo to use")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BadList, subprocess.CalledProcessError) as fault:
        sys.exit(f"zenoh_crate: {fault}")
