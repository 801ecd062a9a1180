# SPDX-License-Identifier: Apache-2.0
"""Raises Tendon's errors as torch.distributed raises its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist

from .. import _tendon


@contextlib.contextmanager
def as_of_torch(timeout_s: float | None = None) -> Iterator[None]:
    """Turns errors of Tendon into DistBackendError with the same text; Ctrl-C stays unchanged.

    timeout_s: that of the operation. torch can set it in many places, so the text states the one used.
    """
    try:
        yield
    except dist.DistBackendError:
        raise
    except _tendon.Timeout as error:
        note = "" if timeout_s is None or " ended it: " in str(error) else (f"\n note: its timeout was {timeout_s:g} s (timeout= of init_process_group "
                                             "and new_group, or set_timeout)")
        raise dist.DistBackendError(f"{error}{note}") from error
    except (_tendon.Error, TypeError, ValueError) as error:
        raise dist.DistBackendError(str(error)) from error


def seconds_of(given: timedelta, default_s: float) -> float:
    """Returns a timeout among options of torch in seconds; a negative one means the default."""
    return default_s if given < timedelta(0) else given.total_seconds()
