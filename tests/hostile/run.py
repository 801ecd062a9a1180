#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py STATE_LIBRARY PROGRAM [ARGUMENT]...: runs a test program in a process in a hostile state.

The state is that of hostile_state.cpp with all of its parts, or with those of TENDON_HOSTILE_STATE only.
"""

import os
import subprocess
import sys
import tempfile

PARTS = "flush_to_zero,comma_locale,signals,descriptor_2,runtime_directory"
LOCALE = "de_DE"


def main() -> int:
    library, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tendon-") as folder:
        # It returns 1 where it warns of what the definition leaves out.
        made = subprocess.run(["localedef", "-i", LOCALE, "-f", "UTF-8", f"{folder}/{LOCALE}.UTF-8"],
                              stderr=subprocess.DEVNULL, check=False).returncode
        if made not in (0, 1):
            sys.exit("there is no locale: Debian's package `locales` has its definition")
        return subprocess.run(command, check=False, env=os.environ | {
            "LD_PRELOAD": library, "TENDON_HOSTILE_FOLDER": folder,
            "TENDON_HOSTILE_STATE": os.environ.get("TENDON_HOSTILE_STATE", PARTS)}).returncode


if __name__ == "__main__":
    sys.exit(main())
