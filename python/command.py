#!python
# SPDX-License-Identifier: Apache-2.0
"""Replaces this process by the command, which lies in the package beside its libraries."""

import os
import signal
import sys

if __name__ == "__main__":
    # The folders are pip's folder for packages, and the one beside this file's folder for `pip install --target`. This
    # file does not import the package or a module to find it: that takes longer than most verbs.
    folders = [*sys.path[1:], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    programs = [os.path.join(folder, "tendon/bin/tendon") for folder in folders]
    program = next((one for one in programs if os.access(one, os.X_OK)), None)
    if program is None:
        sys.exit(f"tendon: the package is not whole, there is none of {', '.join(programs)}; install it again")
    # Python ignores these signals, and the command would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(program, sys.argv)
