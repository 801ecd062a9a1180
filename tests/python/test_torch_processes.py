# SPDX-License-Identifier: Apache-2.0
"""The backend "tendon" in whole programs: torchrun, the end of the interpreter, and which half is loaded."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conftest import PATIENCE_S, SANITIZED, free_address  # noqa: E402

pytestmark = pytest.mark.skipif(SANITIZED, reason="torch is not built for the sanitizer")


def finished(*words: str, source: str = "", **environment: str) -> tuple[int, str]:
    """Runs a Python program; returns its exit code and all of its output."""
    arguments = [*words, *(("-c", textwrap.dedent(source)) if source else ())]
    done = subprocess.run([sys.executable, *arguments], check=False, text=True, timeout=PATIENCE_S, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, **environment})
    return done.returncode, done.stdout


def test_tendon_does_not_import_torch():
    code, said = finished(source="import sys, tendon; sys.exit('torch' in sys.modules)")
    assert code == 0, said


def test_torch_finds_it_by_its_name():
    found = importlib.metadata.entry_points(group="torch.distributed.backends")
    assert "tendon.torch:register" in [one.value for one in found if one.name == "tendon"]


# In the first run rank 1 is killed; in the second run nobody destroys the process group.
RESTARTED = """
import os, signal
import torch, torch.distributed as dist

dist.init_process_group("tendon")
x = torch.ones(1)
dist.all_reduce(x)
again = os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
if not again and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(x)
work = dist.all_reduce(x, async_op=True)
future = work.get_future()
said = f"finished {again} {int(future.wait()[0].item())} {torch.get_default_dtype()}\\n"
said += f"{'cpu' in dist.get_backend_config()} {dist.get_backend()}\\n"
# One write: torchrun starts both ranks without a buffer, on one pipe.
os.write(1, said.encode())
"""


def test_torchrun_restarts_after_a_kill_and_ends_without_destroy(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(RESTARTED)
    port = free_address().split(":")[1]
    code, said = finished("-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--master-port",
                          port, str(program), OMP_NUM_THREADS="1")
    assert code == 0, said
    assert said.count("finished True 8") == 2, said
    assert "Fatal" not in said and "terminate called" not in said, said


@pytest.mark.skipif(not os.environ.get("TENDON_TEST_LONG"), reason="TENDON_TEST_LONG is not set")
@pytest.mark.parametrize("half", ["extension", "python"])
def test_ends_without_destroy(half, tmp_path):
    """Ends after training, with pending work, with a second group; a rank that raises keeps its exit code."""
    program = Path(__file__).parent / "torch_support" / "exits.py"
    code, said = finished(str(program), str(tmp_path), TENDON_TORCH_BACKEND=half, OMP_NUM_THREADS="1")
    assert code == 0, said
    for way in ("trained", "pending", "group"):
        assert f"{way} 0 0" in said and f"{way} 1 0" in said, said
    assert "error 0 0" in said and "error 1 1" in said, said


def test_half_in_python_says_its_gaps_once():
    code, said = finished(source="""
        import torch.distributed as dist
        for _ in range(2):
            dist.init_process_group("tendon", store=dist.HashStore(), rank=0, world_size=1)
            dist.barrier()
            dist.destroy_process_group()
        """, TENDON_TORCH_BACKEND="python")
    assert code == 0, said
    assert said.count("RuntimeWarning") == 1 and "is_completed()" in said and "tendon.torch build" in said, said


def test_extension_for_another_torch_is_refused():
    """The extension of another release has another file name; a wrongly named one is refused at its import."""
    code, said = finished(source="""
        from tendon.torch import _extension
        path = next(place / _extension.file_name() for place in _extension.places()
                    if (place / _extension.file_name()).exists())
        import torch
        torch.__version__ = "2.14.1"
        module, why_not = _extension.load.__wrapped__()
        assert module is None and "torch2.15" in why_not, why_not
        try:
            _extension._open(path)
        except ImportError as error:
            print("refused:", error)
        """)
    assert code == 0, said
    assert "refused: the extension of the backend 'tendon' was compiled against torch" in said, said


def test_build_names_what_is_missing(tmp_path):
    code, said = finished("-m", "tendon.torch", "build", "--into", str(tmp_path), PATH=str(tmp_path), CXX="")
    assert code == 1
    assert "there is no C++ compiler" in said, said


def test_wrong_wish_is_named():
    code, said = finished(source="from tendon.torch import _extension; _extension.load()", TENDON_TORCH_BACKEND="fast")
    assert code == 1 and "legal are 'extension' and 'python'" in said, said


def test_sources_are_in_the_package(package_folder: Path):
    assert {path.name for path in (package_folder / "torch/native").iterdir()} == {
        "backend.hpp", "completer.hpp", "extension.cpp", "lent.hpp", "table.hpp", "work.hpp"}
