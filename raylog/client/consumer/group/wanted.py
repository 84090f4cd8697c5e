"""What an application subscribes to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from raylog.client.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the application subscribed to: topics, or a pattern that whole names must match."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    on_server: bool = False
    """The coordinator matches (KIP-848)."""


def wanted_of(topics: str | re.Pattern[str] | Iterable[str], *, on_server: bool) -> Wanted:
    """What `subscribe` was given: topics; or a pattern, compiled or as text that begins with ^."""
    if isinstance(topics, re.Pattern):
        return Wanted(pattern=topics, on_server=on_server)
    if isinstance(topics, str):
        if topics.startswith("^"):
            return Wanted(pattern=re.compile(topics), on_server=on_server)
        return Wanted(frozenset([topics]))
    names = frozenset(topics)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidSetting(f"expected names of topics, found {name!r}")
    return Wanted(names)
