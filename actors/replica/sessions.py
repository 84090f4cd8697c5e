"""Fetch sessions between a gateway and a replica: what is watched, and what has news.

A session holds its interests and the set of partitions with news: new interests, partitions whose
high watermark moved, partitions whose records were sent or did not fit behind those of others.
What was sent goes to the end and what did not fit stays in front, so that all get their turn. A
request looks at the news only, so its cost does not grow with what is watched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from raylog.actors.plain import each_taken
from raylog.actors.ports import PartitionKey
from raylog.actors.replica.api import READ_COMMITTED, FetchAsk, FetchedPartition, Interest
from raylog.actors.runtime.base import LinkRequest

LOOKS_MAX = 250
"""Partitions that are looked at in one go."""
ReadPartition = Callable[[Interest, int, bool, int], FetchedPartition]
"""(interest, bytes at most, whether one batch may exceed them, isolation level)."""


@dataclass(slots=True, eq=False)
class FetchSession:
    """One fetcher's interests in the partitions of one Replica actor."""

    once: bool
    """Ends with its first answer."""
    interests: dict[PartitionKey, Interest] = field(default_factory=dict)
    news: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions to look at, the longest waiting first."""
    parked: LinkRequest | None = None
    waits: bool = False
    """Whether that is to be answered only when it is worth it."""
    waits_for_files: bool = False
    """Whether a request that does not wait for records is held for what a thread reads."""
    _isolation_level: int = 0
    _min_bytes: int = 0
    _max_bytes: int = 0
    _complete: bool = False
    _found: dict[PartitionKey, FetchedPartition] = field(default_factory=dict)
    _found_bytes: int = 0
    _left_out: dict[PartitionKey, None] = field(default_factory=dict)
    """What the bytes did not suffice for."""
    has_more: bool = False
    """Whether there are partitions with news that were not looked at for want of time."""
    _due: bool = False
    """Whether the answer waits for nothing more.

    There is an error, the fetcher must cut its log, or records do not fit any more.
    """

    def change(self, ask: FetchAsk) -> None:
        """Take in a request's changes."""
        self._isolation_level = ask.isolation_level
        self._min_bytes = ask.min_bytes
        self._max_bytes = ask.max_bytes
        self._complete = ask.complete
        self.waits = ask.wait
        for topic_id, partition in ask.forgotten:
            self.interests.pop((topic_id, partition), None)
            self.news.pop((topic_id, partition), None)
        for interest in each_taken(Interest, ask.changes):
            key = (interest.topic_id, interest.partition)
            self.interests[key] = interest
            self.news.pop(key, None)
            self.news[key] = None

    def collect(self, read: ReadPartition) -> bool:
        """Read what has news, up to the bytes asked for; whether that is worth an answer now.

        Looks at LOOKS_MAX partitions at most: `has_more` says whether others are left, to which
        the next call goes on. A complete answer waits for all of them.
        """
        self.has_more = False
        for looked, key in enumerate(tuple(islice(self.news, LOOKS_MAX + 1))):
            before = self._found.get(key)
            others = self._found_bytes - (0 if before is None else before.length)
            if others >= self._max_bytes and others > 0 and not self._complete:
                break
            if looked == LOOKS_MAX:
                self.has_more = True
                break
            interest = self.interests[key]
            room = min(interest.max_bytes, max(0, self._max_bytes - others))
            part = read(interest, room, others == 0, self._isolation_level)
            self._found[key] = part
            self._found_bytes = others + part.length
            del self.news[key]
            if others > 0 and self._has_records(interest, part) and not part.length:
                self._left_out[key] = None
                self._due = True
            told_at_once = part.error_code != 0 or part.diverging is not None
            self._due = self._due or told_at_once
        if self.has_more and self._complete:
            return False
        return self._due or self._found_bytes >= self._min_bytes

    def _has_records(self, interest: Interest, part: FetchedPartition) -> bool:
        """Whether there is anything that the fetcher may have, be there room for it or not."""
        committed = self._isolation_level == READ_COMMITTED
        end = part.last_stable_offset if committed else part.high_watermark
        return not part.error_code and part.diverging is None and interest.offset < end

    def answer(self) -> None:
        """Answer the parked request with what was found.

        Partitions with records stay in the news until the fetcher moves past them.
        """
        assert self.parked is not None
        parked, self.parked = self.parked, None
        found, self._found = self._found, {}
        self._found_bytes = 0
        self._due = self.has_more = False
        if self._left_out:
            self.news = self._left_out | self.news  # the first to be looked at for the next answer
            self._left_out = {}
        if not self.once:
            self.news.update(dict.fromkeys(key for key, part in found.items() if part.length))
        parked.reply(list(found.values()))
