"""Property tests draw the same examples in every run; with RAYLOG_EXPLORE=1 they draw new ones.

New ones that fail are kept in RAYLOG_EXPLORED (`.cache/explored`), and come first the next time
(`tests/explore.py`). They have no deadlines: a machine that others share fails none of them by
being slow.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import engine

SLOW = [HealthCheck.too_slow]
KEPT = Path(os.environ.get("RAYLOG_EXPLORED") or ".cache/explored").absolute() / "examples"
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile(
    "new",
    deadline=None,
    suppress_health_check=SLOW,
    database=DirectoryBasedExampleDatabase(KEPT),
    print_blob=True,
)
if os.environ.get("RAYLOG_EXPLORE"):
    settings.load_profile("new")
    engine.MAX_SHRINKING_SECONDS = 30  # of 300: a run that explores has three minutes in all
else:
    settings.load_profile("same")
