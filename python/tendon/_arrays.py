# SPDX-License-Identifier: Apache-2.0
"""Arrays on memory that may be read, not written."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._tendon import Tensor


class ReadOnlyArray(np.ndarray):
    """A numpy.ndarray that also says to torch that it may not be written to.

    torch knows no such memory and lets its users write to it; so
    torch.from_dlpack(array) gets a copy, counted by tendon.copied_read_only().
    """

    def __dlpack__(self, **arguments: Any) -> Any:
        if self.flags.writeable:  # a copy of such an array
            return super().__dlpack__(**arguments)
        return Tensor(self).__dlpack__(**arguments)

    # Copies are plain arrays, which may be written.

    def __deepcopy__(self, memo: dict[int, Any]) -> np.ndarray:
        return np.array(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # From protocol 5 on, read-only memory stays read-only.
        return self.view(np.ndarray).__reduce_ex__(min(protocol, 4))
