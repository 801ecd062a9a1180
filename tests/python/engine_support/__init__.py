# SPDX-License-Identifier: Apache-2.0
"""The parts that the tests of examples/engine share: workers, a small scheduler, a plain model, and faults to plant."""

import sys
from pathlib import Path

ENGINE = Path(__file__).parents[3] / "examples" / "engine"
if str(ENGINE) not in sys.path:
    sys.path.insert(0, str(ENGINE))
