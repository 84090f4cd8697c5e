"""The build of the code that this process runs."""

from __future__ import annotations

from typing import Final

from raylog import __version__

BUILD: Final[str] = __version__
"""The version of the package. A broker ends child actors that run another one."""
