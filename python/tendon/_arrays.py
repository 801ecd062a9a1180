# SPDX-License-Identifier: Apache-2.0
"""Arrays on read-only memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._tendon import Tensor


class ReadOnlyArray(np.ndarray):
    """A numpy.ndarray that also tells torch that it is read-only.

    torch cannot express such memory and lets its users write to it, so
    torch.from_dlpack(array) gets a copy, counted by tendon.copied_read_only().
    """

    def __dlpack__(self, **arguments: Any) -> Any:
        if self.flags.writeable:  # a copy of such an array
            return super().__dlpack__(**arguments)
        return Tensor(self).__dlpack__(**arguments)

    # Copies are plain, writable arrays.

    def __deepcopy__(self, memo: dict[int, Any]) -> np.ndarray:
        return np.array(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # From protocol 5 on, a pickle would keep read-only memory read-only.
        return self.view(np.ndarray).__reduce_ex__(min(protocol, 4))
