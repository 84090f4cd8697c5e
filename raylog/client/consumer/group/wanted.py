"""What an application subscribes to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from raylog.client.cluster import require_topics
from raylog.client.errors import InvalidSetting

_FLAGS = {re.IGNORECASE: "(?i)", re.MULTILINE: "(?m)", re.DOTALL: "(?s)"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription: topics, or a pattern that whole names must match."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    on_server: bool = False
    """Whether the coordinator matches the pattern (KIP-848)."""

    @property
    def text_for_server(self) -> str:
        """The pattern as the coordinator reads it (RE2): with its flags inside."""
        assert self.pattern is not None, "topics have no pattern"
        flags = (name for flag, name in _FLAGS.items() if self.pattern.flags & flag)
        return "".join([*flags, self.pattern.pattern])


def wanted_of(topics: str | re.Pattern[str] | Iterable[str], *, on_server: bool) -> Wanted:
    """Parse the argument of `subscribe`: topics, or a pattern, compiled or a string with ^ first.

    Raises InvalidSetting or InvalidTopicException.
    """
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str) or (on_server and topics.flags & re.VERBOSE):
            raise InvalidSetting(f"expected a pattern of str without re.VERBOSE, found {topics!r}")
        return Wanted(pattern=topics, on_server=on_server)
    if isinstance(topics, str):
        if topics.startswith("^"):
            try:
                return Wanted(pattern=re.compile(topics), on_server=on_server)
            except re.error as error:
                raise InvalidSetting(f"expected a pattern, found {topics!r}: {error}") from error
        topics = [topics]
    given: object = topics
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidSetting(f"expected topics or a pattern, found {given!r}")
    names = frozenset(topics)
    if not names:
        raise InvalidSetting("expected topics, found none: unsubscribe() ends a subscription")
    require_topics(names)
    return Wanted(names)
