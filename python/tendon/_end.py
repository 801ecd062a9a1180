# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter, or of a child that multiprocessing forked."""

import threading

from . import _tendon


def close_all() -> None:
    """Closes every Context: unsent messages are sent, and peers are told of the end.

    Daemon threads that wait in a Context get ContextClosed. A thread that does not catch it ends silently: a traceback
    would tell nothing new, and a thread that writes one while the interpreter ends may abort the process.
    """
    report = threading.excepthook

    def report_others(failed: threading.ExceptHookArgs) -> None:
        closed = isinstance(failed.exc_value, _tendon.ContextClosed)
        if not (closed and failed.thread is not None and failed.thread.daemon):
            report(failed)

    threading.excepthook = report_others
    _tendon._close_all()
