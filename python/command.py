#!python
# SPDX-License-Identifier: Apache-2.0
"""Becomes the command, which lies in the package beside the libraries that it needs."""

import os
import signal
import sys

if __name__ == "__main__":
    # Where pip puts packages, and beside the folder of this file with `pip install --target`. Neither the package nor a
    # module that could look for it is imported: that takes longer than most verbs.
    folders = [*sys.path[1:], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    programs = [os.path.join(folder, "tendon/bin/tendon") for folder in folders]
    program = next((one for one in programs if os.access(one, os.X_OK)), None)
    if program is None:
        sys.exit(f"tendon: the package is not whole, there is none of {', '.join(programs)}; install it again")
    # Python ignores these, and what it becomes would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(program, sys.argv)
