"""Settings of the client of commands that hold no `BlockingClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raylog.client import ClientSettings


def client_settings(bootstrap: str | Sequence[str]) -> ClientSettings:
    """Those with which a command connects to bootstrap servers; raises InvalidSetting."""
    from raylog.client.config import client_only

    return client_only(bootstrap, {})
