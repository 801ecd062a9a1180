# SPDX-License-Identifier: Apache-2.0
"""Selects the half that runs: the extension that is compiled against torch, or the one in Python.

The extension is looked for in this package and in the user's cache. Its file is named after its
sources, torch's version and ABI, and Python's: a file compiled for others is not even opened.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._groups import Member

SOURCES = Path(__file__).parent / "native"
GAPS = (
    "is_completed() of a Work is always False",
    "recv(src=None) is refused, as torch would not hear whose message it was",
    "exception() and result() of a Work are torch's defaults",
    "the profiler sees no `tendon:` events",
)


def backend(member: Member, name: str) -> Any:
    """Makes the backend of one process group."""
    extension, why_not = load()
    if extension is not None:
        return extension.make(member, name)
    _warn_once(why_not)
    from ._backend import PythonBackend

    return PythonBackend(member, name)


@functools.cache
def load() -> tuple[ModuleType | None, str]:
    """Returns the extension, or None and the reason for its absence.

    TENDON_TORCH_BACKEND: 'extension' makes its absence an error, 'python' leaves it out.
    """
    wish = os.environ.get("TENDON_TORCH_BACKEND", "")
    if wish not in ("", "extension", "python"):
        raise ValueError(f"TENDON_TORCH_BACKEND is '{wish}'; legal are 'extension' and 'python'")
    if wish == "python":
        return None, "TENDON_TORCH_BACKEND=python leaves it out"
    module, why_not = _open_first()
    if module is None and wish == "extension":
        raise ImportError(f"TENDON_TORCH_BACKEND=extension: {why_not}")
    return module, why_not


def file_name() -> str:
    import torch

    release = ".".join(torch.__version__.split(".")[:2])
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return (f"_tendon_torch-{_sources_hash()}-torch{release}-abi{abi}"
            f"{sysconfig.get_config_var('EXT_SUFFIX')}")


def places() -> Iterator[Path]:
    """Returns its possible paths, the first choice first."""
    yield Path(__file__).parent
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    yield Path(cache) / "tendon" / "torch"


def _open_first() -> tuple[ModuleType | None, str]:
    name = file_name()
    for place in places():
        path = place / name
        if path.exists():
            try:
                return _open(path), ""
            except ImportError as error:
                return None, f"{path} cannot be loaded: {error}"
    others = sorted(path.name for place in places() for path in place.glob("_tendon_torch-*.so"))
    return None, ("it was compiled for another torch, Python or release only: "
                  + ", ".join(others) if others else "it was not compiled yet")


def _open(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_tendon_torch", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["_tendon_torch"] = module
    return module


@functools.cache
def _sources_hash() -> str:
    hashed = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".hpp", ".cpp"):
            hashed.update(path.name.encode() + path.read_bytes())
    return hashed.hexdigest()[:12]


@functools.cache
def _warn_once(why_not: str) -> None:
    warnings.warn("the backend 'tendon' runs without its extension: " + why_not + ". `python -m "
                  "tendon.torch build` compiles it against this torch. Without it the backend is "
                  "slower, and: " + "; ".join(GAPS) + ".", RuntimeWarning, stacklevel=2)
