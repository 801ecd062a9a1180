# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter, or of a child that multiprocessing forked."""

import threading

from . import _tendon


def close_all() -> None:
    """Closes every Context: what is unsent leaves, and peers hear the end.

    Daemon threads that wait in one hear ContextClosed. Where nobody catches it they end without a word: a traceback
    would be no news to anybody, and a thread that writes one while the interpreter ends may abort the process.
    """
    report = threading.excepthook

    def report_others(failed: threading.ExceptHookArgs) -> None:
        closed = isinstance(failed.exc_value, _tendon.ContextClosed)
        if not (closed and failed.thread is not None and failed.thread.daemon):
            report(failed)

    threading.excepthook = report_others
    _tendon._close_all()
