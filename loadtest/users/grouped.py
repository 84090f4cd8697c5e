"""Members of consumer groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from raylog.client import RebalanceListener, TopicPartition
from raylog.client.producer.reports import describe
from raylog.loadtest.long_operations import LongOperation
from raylog.loadtest.operations import COMMIT, JOIN, REBALANCE
from raylog.loadtest.scenario import GroupUsers
from raylog.loadtest.users.base import ERRORS, LOOK_S
from raylog.loadtest.users.reading import POLL_MS, POLL_RECORDS, ReadingUser
from raylog.wire.errors import RebalanceInProgress

COMMIT_US = 1_000_000
"""How often a member commits."""
_US_PER_S = 1_000_000


class GroupUser(ReadingUser[GroupUsers]):
    """A member of a group that commits what it has read.

    "join" is the time from the subscription to the first assignment, "rebalance" that from a
    revocation to the next assignment, "commit" that from when a commit is due, once a second.
    """

    abstract = True

    def on_start(self) -> None:
        """Start outside of the group."""
        super().on_start()
        self._join = LongOperation(self.local, JOIN)
        self._rebalance = LongOperation(self.local, REBALANCE)

    def begin(self) -> None:
        """Join. A static member comes back under its name."""
        local, entry = self.local, self.entry
        settings: dict[str, object] = {
            "isolation.level": "read_committed",
            "group.id": local.group(entry.group),
            "group.protocol": entry.protocol,
        }
        if entry.static:
            settings["group.instance.id"] = f"{entry.group}-{self.seat}"
        now_us = local.clock.now_us()
        self._joined_us, self._commit_us = now_us, now_us + COMMIT_US
        self._has_read = False
        self._join.begin(now_us)
        consumer = self.open({**settings, **entry.client})
        consumer.subscribe([local.topic(entry.topic)], _Moves(self))

    def step(self) -> None:
        """Read, process, commit. Leave when it is time, but only after having joined."""
        count = self.take(self.consumer.poll(POLL_MS, self._records_at_once))
        self._has_read = self._has_read or count > 0
        if count and self.entry.processing_ms:
            self.sleep(count * self.entry.processing_ms / 1_000)
        now_us = self.local.clock.now_us()
        due = range(self._commit_us, now_us + 1, COMMIT_US)
        self._commit_us += len(due) * COMMIT_US
        if due and self._has_read:
            self._commit(due)
        stays_us = (self.entry.stays_s or math.inf) * _US_PER_S
        is_over = now_us - self._joined_us >= stays_us and not self._join.is_open
        if is_over and not self.is_stopping:
            self.end()
            self.begin()

    @property
    def is_settled(self) -> bool:
        """Whether no rebalance is in progress."""
        return not self._rebalance.is_open

    def end(self) -> None:
        """Count operations that take unusually long as failed, and a join that was given up."""
        self._join.leave(is_over=not self.is_stopping)
        self._rebalance.leave()
        try:
            super().end()
        finally:
            self._rebalance.leave()  # closing revokes partitions

    @property
    def _records_at_once(self) -> int:
        """What can be processed within half a second, so that a slow member can stop."""
        if not self.entry.processing_ms:
            return POLL_RECORDS
        return min(POLL_RECORDS, max(1, int(1_000 * LOOK_S / self.entry.processing_ms)))

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle an assignment, which may be empty."""
        now_us = self.local.clock.now_us()
        self._join.done(now_us)
        self._rebalance.done(now_us)
        self.forget_order(list(partitions))

    def revoked(self) -> None:
        """Commit what was read of revoked partitions."""
        now_us = self.local.clock.now_us()
        self._rebalance.begin(now_us)
        if self._has_read:
            self._commit([now_us])

    def lost(self) -> None:
        """Begin a rebalance: other members own the partitions already."""
        self._rebalance.begin(self.local.clock.now_us())

    def _commit(self, due_us: Sequence[int]) -> None:
        """Commit. A delayed member does all due commits with one."""
        recorder = self.local.recorder
        try:
            self.consumer.commit()
        except RebalanceInProgress:
            return  # nothing is committed, and the member rejoins
        except ERRORS as error:
            recorder.failed_many(COMMIT, describe(error), due_us)
        else:
            self._has_read = False
            recorder.done_many(COMMIT, due_us, self.local.clock.now_us())


class _Moves(RebalanceListener):
    """Passes rebalance events to a user."""

    def __init__(self, user: GroupUser) -> None:
        self._user = user

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._user.assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._user.revoked()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._user.lost()
