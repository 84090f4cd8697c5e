"""What importing the codec imports."""

import subprocess
import sys

PROGRAM = """
import sys
from raylog.wire.frame import decode_request_header
loaded = [name for name in sys.modules if name.startswith("raylog.wire.messages.")]
print(loaded, "asyncio" in sys.modules, "ray" in sys.modules)
"""


def test_messages_are_imported_when_first_used() -> None:
    """The embedded broker starts in a moment because most messages are never needed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['raylog.wire.messages.registry'] False False"
