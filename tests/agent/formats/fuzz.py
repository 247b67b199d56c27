"""How many malformed inputs each test tries: a few hundred in the suite, and as many as `make fuzz` asks for."""

from __future__ import annotations

import os

VARIABLE = "MUSTER_FUZZ_EXAMPLES"


def examples(usual: int) -> int:
    return int(os.environ.get(VARIABLE, usual))
