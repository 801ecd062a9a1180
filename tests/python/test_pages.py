# SPDX-License-Identifier: Apache-2.0
"""Every Python program and every command of a page runs as it stands, and prints what the page says.

Programs that follow each other run at the same time, each in a process of its own. The commands of a ```console block
after them are typed meanwhile, one after the other. A program that a command names is started by that command. Output
that ends with "..." continues until the test ends it; of a command only stdout is compared.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import PATIENCE_S, SANITIZED, free_address

import tendon

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_readme  # noqa: E402

PAGES = ("README.md", "docs/python.md", "docs/fabric.md")
GOES_ON = "...\n"
# A program reports that it waits where the other one takes more than a second to start.
STILL_DIALS = re.compile(r"^.* tendon\[.*nobody listens at .* yet .*\n", re.MULTILINE)
# Measurements and counts differ from run to run.
MEASURED = re.compile(r"(?:\b\d+(?:\.\d+)? (?:([num]?s)|(Hz))\b|#\d+\b)")


def scenes() -> list:
    return [pytest.param(scene, id=f"{page}-{number}") for page in PAGES
            for number, scene in enumerate(check_readme.scenes_of((ROOT / page).read_text(), "python"))]


def programs() -> list:
    """Each program of the pages by itself."""
    return [pytest.param(program.source, id=f"{scene.id}-{number}")
            for scene in scenes() for number, program in enumerate(scene.values[0].programs)]


def of_group(source: str) -> list[dict[str, str]]:
    """The environment that a launcher sets for each member; one process with no variables where there is no group."""
    if "Group.join()" not in source and "init_process_group(" not in source:
        return [{}]
    address = free_address()
    host, port = address.rsplit(":", 1)
    return [{"RANK": str(rank), "WORLD_SIZE": "2", "TENDON_RENDEZVOUS": address, "MASTER_ADDR": host, "MASTER_PORT": port}
            for rank in range(2)]


def same_everywhere(text: str) -> str:
    return MEASURED.sub(lambda found: "9 s" if found[1] else "9 Hz" if found[2] else "#9",
                        check_readme.same_everywhere(text))


def has_zenoh() -> bool:
    try:
        tendon.Node("probe", domain="pages", context=tendon.Context()).close()
    except tendon.NotSupported:
        return False
    return True


def first_lines(process: subprocess.Popen, count: int) -> str:
    """The output of a program that does not end; a program that prints nothing is killed, which ends its output."""
    patience = threading.Timer(PATIENCE_S, process.kill)
    patience.start()
    printed = "".join(process.stdout.readline() for _ in range(count))
    patience.cancel()
    return printed


def kill_session(process: subprocess.Popen) -> None:
    """Kills the shell of a command, and the program that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Stage:
    """The stage of a scene: a folder, a runtime directory and ports of its own."""

    def __init__(self, scene: check_readme.Scene, folder: Path) -> None:
        self.scene = scene
        self.ports = check_readme.free_ports([program.source for program in scene.programs]
                                             + [command for command, _ in scene.commands])
        self.environment = check_readme.environment() | {
            "TENDON_RUNTIME_DIR": str(folder / "runtime"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.terminals: list[list[str]] = []
        for number, program in enumerate(scene.programs):
            check_readme.original_of(program, ROOT)
            file = folder / f"{number}.py"
            file.write_text(check_readme.with_ports(program.source, self.ports))
            if not program.example or not any(program.example in command for command, _ in scene.commands):
                self.terminals.append([sys.executable, str(file)])

    def play(self) -> None:
        """Runs the programs to their ends, or beside the commands."""
        environments = [{}] * len(self.terminals)
        if len(self.terminals) == 1 and self.scene.output is not None:
            environments = of_group(self.scene.programs[0].source)
        terminals = self.terminals * (len(environments) if len(self.terminals) == 1 else 1)
        processes = check_readme.start_terminals(terminals, self.scene.awaited(self.ports),
                                                 [self.environment | each for each in environments])
        try:
            if self.scene.commands:
                self.type_commands()
                assert [process.poll() for process in processes] == [None] * len(processes)
                return
            said = ""
            for process in processes:
                out, err = process.communicate(timeout=PATIENCE_S)
                assert (process.returncode, STILL_DIALS.sub("", err)) == (0, "")
                said += out
            assert same_everywhere(said) == same_everywhere(self.scene.output)
        finally:
            check_readme.stop_terminals(processes)

    def type_commands(self) -> None:
        """A command that does not end runs until the last one has ended, as in a terminal of its own."""
        back = {here: port for port, here in self.ports.items()}
        with contextlib.ExitStack() as ends:
            for command, output in self.scene.commands:
                errors = ends.enter_context(tempfile.TemporaryFile("w+"))
                process = ends.enter_context(subprocess.Popen(
                    ["bash", "-c", check_readme.with_ports(command, self.ports)], cwd=ROOT, env=self.environment,
                    start_new_session=True, stdout=subprocess.PIPE, stderr=errors, text=True))
                ends.callback(kill_session, process)
                if output.endswith(GOES_ON):
                    printed = first_lines(process, output.count("\n") - 1) + GOES_ON
                else:
                    printed = process.communicate(timeout=2 * PATIENCE_S)[0]
                printed = check_readme.with_ports(printed, back)
                errors.seek(0)
                assert same_everywhere(printed) == same_everywhere(output), f"{command}\n{errors.read()}"


@pytest.mark.parametrize("scene", scenes())
def test_page(scene):
    sources = [program.source for program in scene.programs]
    if any(re.search(r"^import .*\btorch\b", source, re.MULTILINE) for source in sources):
        if SANITIZED:
            pytest.skip("the import of torch takes minutes there")
        if find_spec("torch") is None:
            pytest.skip("there is no torch")
    if any("tendon.Node(" in source and "peers=" not in source for source in sources) and not has_zenoh():
        pytest.skip("this build has no Zenoh, by which the nodes find each other")
    with tempfile.TemporaryDirectory() as folder:  # a short path, because it contains sockets
        Stage(scene, Path(folder)).play()


PRINTS = check_readme.Program("print('1 ms #7')\n", "")
GOES_ON_ALONE = check_readme.Program("import time\ntime.sleep(60)\n", "")


@pytest.mark.parametrize("scene", [
    check_readme.Scene([PRINTS], "2 us #3\n"),
    check_readme.Scene([PRINTS, PRINTS], "1 s #1\n1 s #1\n"),
    check_readme.Scene([GOES_ON_ALONE], None, [("echo 5 ms 3", "6 us 3\n"), ("yes", "y\ny\n...\n")])])
def test_what_is_measured_may_differ(scene):
    with tempfile.TemporaryDirectory() as folder:
        Stage(scene, Path(folder)).play()


@pytest.mark.parametrize("scene", [
    check_readme.Scene([PRINTS], "1 ms 7\n"),
    check_readme.Scene([PRINTS], "1 ms #7\n1 ms #7\n"),
    check_readme.Scene([check_readme.Program("print(1)\nexit(1)\n", "")], "1\n"),
    check_readme.Scene([check_readme.Program("import sys\nprint(1, file=sys.stderr)\n", "")], ""),
    check_readme.Scene([GOES_ON_ALONE], None, [("echo 5 ms 3", "6 us 4\n")]),
    check_readme.Scene([GOES_ON_ALONE], None, [("yes", "n\n...\n")]),
    check_readme.Scene([GOES_ON_ALONE], None, [("echo 1", "1\n2\n...\n")]),
    check_readme.Scene([PRINTS], None, [("sleep 1", "")])],
    ids=["another word", "a line too many", "an exit code", "an error", "another output of a command",
         "another output that goes on", "an output that ends", "a program that ends before the commands"])
def test_faults_of_a_page_are_found(scene):
    """A test of pages that cannot fail would prove nothing."""
    with tempfile.TemporaryDirectory() as folder, pytest.raises(AssertionError):
        Stage(scene, Path(folder)).play()
