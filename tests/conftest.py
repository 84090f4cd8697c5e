"""Property tests draw the same examples in every run; with RAYLOG_EXPLORE=1 they draw new ones."""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
if not os.environ.get("RAYLOG_EXPLORE"):
    settings.load_profile("same")
