#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what `make demo` says before it begins, and that DEMO_NO_INSTALL=1 installs nothing.

check_demo.py ROOT       runs tools/demo.sh of a copy of what it needs, where nothing is installed and commands that
                         would install or build only write down how they were called
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from debian_packages import packages_of  # noqa: E402

NEEDED = ["tools", "rust/tendon-zenoh", "cmake/zenoh.cmake", "tests/python/requirements.txt"]
# dpkg-query knows no package. What apt-get prints is one file of 7 MB.
STAND_INS = {
    "dpkg-query": "exit 1",
    "apt-get": "case \" $* \" in *\" --print-uris \"*) echo \"'somewhere' file 7000000 sum\" ;; *) note \"$@\" ;; esac",
    "sudo": "while [ \"${1#-}\" != \"$1\" ]; do shift; done; [ \"$1\" = true ] || exec \"$@\"",
    "cmake": "note \"$@\"; exit 1",
    "cargo": "note \"$@\"; exit 1",
    "python3": f"case \" $* \" in *\" pip \"*|*\" venv \"*) note \"$@\"; exit 1 ;; esac; exec {sys.executable} \"$@\"",
}


class Demo:
    """A copy of what tools/demo.sh uses, and what it called there."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "tree"
        self.calls = folder / "calls"
        self.commands = folder / "bin"
        for name in NEEDED:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (root / name).is_dir() else shutil.copy)(root / name, self.root / name)
        # A machine that has a cargo of its own is not asked for it.
        (self.root / "tools/find_cargo.sh").write_text("#!/bin/sh\nexit 1\n")
        self.commands.mkdir()
        for name, what in STAND_INS.items():
            stand_in = self.commands / name
            stand_in.write_text(f'#!/bin/sh\nnote() {{ echo "{name} $*" >>"{self.calls}"; }}\n{what}\n')
            stand_in.chmod(0o755)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        self.calls.write_text("")
        environment = {"PATH": f"{self.commands}:/usr/bin:/bin", "HOME": str(self.root),
                       "XDG_CACHE_HOME": str(self.root / "cache"), **environment}
        return subprocess.run([self.root / "tools/demo.sh", *arguments], env=environment, capture_output=True,
                              text=True, timeout=100)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[^\s;,]+", text))


def main(root: Path) -> int:
    faults = []

    def expect(true: bool, what: str, done: subprocess.CompletedProcess) -> None:
        if not true:
            faults.append(f"{what}:\n{done.stdout}{done.stderr}")

    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(root, Path(folder))
        debian = set(packages_of(root, "build", "demo", "zenoh"))
        python = {line for line in (root / "tests/python/requirements.txt").read_text().splitlines()
                  if re.match(r"(numpy|scipy|scikit-learn|nanobind)==", line)}
        zenoh = re.search(r"^zenoh (\S+)", (root / "rust/tendon-zenoh/crates.txt").read_text(), re.MULTILINE)[1]
        checkpoint = re.search(r"^package=(\S+)", (root / "tools/demo_checkpoint.sh").read_text(), re.MULTILINE)[1]

        plan = demo.run("plan")
        expect(plan.returncode == 0, "the plan fails", plan)
        expect(not demo.called(), f"the plan does {demo.called()}", plan)
        lacks = (debian | python | {checkpoint, zenoh}) - words_of(plan.stdout)
        expect(not lacks, f"the plan does not name {sorted(lacks)}", plan)
        sizes = re.findall(r"a\s+download\s+of\s+\d+\s+MB", plan.stdout)
        expect(len(sizes) == 5, "not each of the 5 downloads has a size", plan)

        static = demo.run("plan", FABRIC="static")
        said = set(packages_of(root, "zenoh")) & words_of(static.stdout)
        expect(not said and "crate" not in static.stdout, f"FABRIC=static names {sorted(said)} or crates", static)

        # It ends where cmake does; the Debian packages are installed before.
        begun = demo.run()
        calls = [call.split(" install ")[1] for call in demo.called() if " install " in call]
        installed = {name for call in calls for name in call.split() if not name.startswith("-")}
        expect(bool(installed), "nothing is installed", begun)
        more = installed - words_of(begun.stdout.partition("setup:")[0])
        expect(not more, f"the plan does not name {sorted(more)}, which it installs", begun)

        refused = demo.run(DEMO_NO_INSTALL="1")
        expect(refused.returncode == 1, "DEMO_NO_INSTALL=1 does not fail", refused)
        expect(not demo.called(), f"DEMO_NO_INSTALL=1 does {demo.called()}", refused)
        needed = set(packages_of(root, "build", "zenoh")) - words_of(refused.stderr)
        expect(not needed, f"DEMO_NO_INSTALL=1 does not name {sorted(needed)}", refused)

    print("\n".join(faults) or "what `make demo` says is what it does")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
