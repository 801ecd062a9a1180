# SPDX-License-Identifier: Apache-2.0
"""Hands tensors from one process to another, on one host through shared memory.

    with tendon.listen("127.0.0.1:7000") as listener, listener.accept() as pipe:
        for batch in pipe:
            train(batch["observation"])

    with tendon.connect("127.0.0.1:7000") as pipe:
        pipe.send({"observation": numpy.ones((4, 3), "f4"), "info": {"step": 7}})

Arrays of NumPy, torch, JAX and of whatever speaks DLPack go in and come out
without a copy. Nothing is ever pickled: what a peer sends is data only.
"""

import atexit

from . import _tendon

# Type checkers take a name for public where it is imported as itself, or by a star.
from ._bench import bench as bench
from ._default import connect as connect
from ._default import default_context as default_context
from ._default import listen as listen
from ._log import set_log_callback as set_log_callback
from ._tendon import *  # noqa: F403
from ._tendon import __version__ as __version__
from .server import Server as Server
from .server import serve as serve

# Messages and help() name things as users write them.
for _entry in vars(_tendon).values():
    if isinstance(_entry, type):
        _entry.__module__ = "tendon"
del _entry

# Before the interpreter takes itself apart: what is unsent leaves, peers hear the end, and then
# the last futures are completed.
atexit.register(_tendon._stop_pump)
atexit.register(_tendon._close_all)
del atexit
