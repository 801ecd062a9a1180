#!python
# SPDX-License-Identifier: Apache-2.0
"""Becomes the command, which lies in the package beside the libraries that it needs."""

import importlib.util
import os
import signal
import sys
import sysconfig


def places() -> list[str]:
    """Folders that the package may be in. It is not imported: that takes longer than the command."""
    spec = importlib.util.find_spec("tendon")
    found = list(spec.submodule_search_locations or []) if spec else []
    return [*found, os.path.join(sysconfig.get_path("platlib"), "tendon")]


if __name__ == "__main__":
    programs = [os.path.join(place, "bin", "tendon") for place in places()]
    program = next((one for one in programs if os.access(one, os.X_OK)), None)
    if program is None:
        sys.exit(f"tendon: the package is not whole, there is none of {', '.join(programs)}; pip install it again")
    # Python ignores these, and what it becomes would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(program, sys.argv)
