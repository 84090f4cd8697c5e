"""Property tests draw the same examples in every run; with RAYLOG_EXPLORE=1 they draw new ones.

They have no deadlines: a machine that others share fails none of them by being slow.
"""

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("new", deadline=None, suppress_health_check=SLOW)
settings.load_profile("new" if os.environ.get("RAYLOG_EXPLORE") else "same")
