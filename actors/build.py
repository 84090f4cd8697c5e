"""Which build of the code a process runs."""

from __future__ import annotations

from typing import Final

from raylog import __version__

BUILD: Final[str] = __version__
"""The package's version: a Broker ends children that run another."""
