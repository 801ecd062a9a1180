# SPDX-License-Identifier: Apache-2.0
"""Hands tensors from one process to another, on one host through shared memory.

    with tendon.listen("127.0.0.1:7000") as listener, listener.accept() as pipe:
        for batch in pipe.each(as_=torch):
            train(batch["observation"])

    with tendon.connect("127.0.0.1:7000") as pipe:
        pipe.send({"observation": torch.ones(4, 3), "info": {"step": 7}})

Arrays of NumPy, torch, JAX and of every library that speaks DLPack go in. They arrive as
arrays of NumPy, or with as_=torch as tensors of torch, without a copy. Nothing is
ever pickled: a peer can send only data.
"""

import atexit

from . import _arguments as _arguments  # first: it replaces functions
from . import _end, _tendon

# Type checkers treat a name as public if it is imported as itself or by a star.
from ._bench import bench as bench
from ._blocking import BlocksEventLoop as BlocksEventLoop
from ._default import aconnect as aconnect
from ._default import connect as connect
from ._default import default_context as default_context
from ._default import listen as listen
from ._log import set_log_callback as set_log_callback
from ._tendon import *  # noqa: F403
from ._tendon import __version__ as __version__
from .server import Server as Server
from .server import serve as serve

# Makes messages and help() name things as users write them.
for _entry in vars(_tendon).values():
    if isinstance(_entry, type):
        _entry.__module__ = "tendon"
del _entry

__all__ = [
    "__version__", "aconnect", "bench", "connect", "copied_read_only", "default_context", "listen",
    "load", "load_consolidated", "load_memmap", "recv_from_stage", "save", "save_consolidated",
    "save_memmap", "send_to_stage", "serve", "set_log_callback", "AddressInUse", "AlreadyTaken",
    "AuthenticationFailed", "BlocksEventLoop", "Busy", "CallAllReplies", "CallStats", "Cancelled", "Context",
    "ContextClosed", "CorruptData", "DeviceLost", "Divergence", "EndOfStream", "Ended",
    "EntityInfo", "Error", "FabricEvent", "FabricEvents", "FileNotFound", "Forked", "Future", "Gap",
    "Group", "GroupAborted", "GroupMember", "GroupStatus", "HandlerFailed", "InternalError",
    "InvalidArgument", "LimitExceeded", "Listener", "LoadedDict", "Loan", "LogLine", "MemberEvent",
    "MemberEvents", "Message", "MessageTooLarge", "Mismatch", "NoCredit", "NoQuorum", "Node",
    "NotContiguous", "NotDirect", "NotFound", "NotSupported", "Overlapping", "ParallelCoordinates",
    "ParallelLayout", "Peer", "PeerLost", "PeerStats", "PermissionDenied", "Pipe", "PipeClosed",
    "PipeStats", "Pool", "PoolSummary", "ProtocolViolation", "Published", "Publisher",
    "PublisherStats", "ReadOnly", "Received", "ReduceOp", "Rendezvous", "Reply", "Request",
    "ResourceExhausted", "Responder", "ResponderStats", "RosterClosed", "Sample", "Schema",
    "SchemaMismatch", "Security", "Server", "ServerBusy", "StorageFull", "Subscriber", "SubscriberStats",
    "SystemFailure", "Tensor", "TensorDict", "Timeout", "TooManyOpenFiles", "Unanswered",
    "Unreachable", "UnsupportedDType", "UnsupportedDevice", "VersionMismatch", "WorkerLost",
    "WrongKind", "WrongLink",
]

# Before the interpreter shuts down, the Contexts are closed and then the last futures are completed.
atexit.register(_tendon._stop_pump)
atexit.register(_end.close_all)
del atexit
