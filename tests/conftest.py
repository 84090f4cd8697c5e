"""Configures Hypothesis: property tests draw the same examples in every run.

They draw few in make test and many in make long (profiles of Hypothesis). With RAYLOG_EXPLORE=1
they draw new ones. New failing examples are kept in RAYLOG_EXPLORED (`.cache/explored`) and run
first the next time (`tests/explore.py`). There are no deadlines, so that a slow shared machine
fails no test.
"""

import gc
import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import engine

SLOW = [HealthCheck.too_slow]
KEPT = Path(os.environ.get("RAYLOG_EXPLORED") or ".cache/explored").absolute() / "examples"
for profile, examples in (("few", 20), ("many", 400)):
    settings.register_profile(
        profile,
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=SLOW,
    )
settings.register_profile(
    "new",
    deadline=None,
    suppress_health_check=SLOW,
    database=DirectoryBasedExampleDatabase(KEPT),
    print_blob=True,
)
if os.environ.get("RAYLOG_EXPLORE"):
    settings.load_profile("new")
    engine.MAX_SHRINKING_SECONDS = 30  # instead of 300: an exploring run has three minutes in total
else:
    settings.load_profile("few")


def pytest_collection_finish() -> None:
    """Exclude thousands of collected tests from garbage collection, since they stay to the end."""
    gc.collect()
    gc.freeze()
