"""Members of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.client import CommitFailed, RebalanceListener, TopicPartition
from raylog.client.producer.reports import describe
from raylog.loadtest.operations import COMMIT, JOIN, REBALANCE
from raylog.loadtest.scenario import GroupUsers
from raylog.loadtest.users.base import LOOK_S
from raylog.loadtest.users.reading import POLL_MS, POLL_RECORDS, ReadingUser
from raylog.wire.errors import KafkaError, RebalanceInProgress

COMMIT_US = 1_000_000
"""How often a member commits."""
_US_PER_S = 1_000_000


class GroupUser(ReadingUser[GroupUsers]):
    """A member of a group, which commits what it has read.

    "join" is the time from the subscription to the first assignment, "rebalance" that from losing
    partitions to the next assignment, "commit" that of a commit, once a second.
    """

    abstract = True

    def begin(self) -> None:
        """Join; a static member comes back under its name."""
        local, entry = self.local, self.entry
        settings: dict[str, object] = {
            "isolation.level": "read_committed",
            "group.id": local.group(entry.group),
            "group.protocol": entry.protocol,
        }
        if entry.static:
            settings["group.instance.id"] = f"{entry.group}-{self.seat}"
        now_us = local.clock.now_us()
        self._joined_us, self._is_member, self._commit_us = now_us, False, now_us + COMMIT_US
        self._lost_us: int | None = None
        self._has_read = False
        local.recorder.intended(JOIN)
        consumer = self.open({**settings, **entry.client})
        consumer.subscribe([local.topic(entry.topic)], _Moves(self))

    def step(self) -> None:
        """Read, process, commit; leave when it is time."""
        count = self.take(self.consumer.poll(POLL_MS, self._records_at_once))
        self._has_read = self._has_read or count > 0
        if count and self.entry.processing_ms:
            self.sleep(count * self.entry.processing_ms / 1_000)
        now_us = self.local.clock.now_us()
        if self._has_read and now_us >= self._commit_us:
            self._commit()
            self._commit_us = now_us + COMMIT_US
        stays_s = self.entry.stays_s
        if stays_s is not None and now_us - self._joined_us >= stays_s * _US_PER_S:
            self.end()
            self.begin()

    @property
    def _records_at_once(self) -> int:
        """No more than are processed within half a second, so that a slow member can stop."""
        if not self.entry.processing_ms:
            return POLL_RECORDS
        return min(POLL_RECORDS, max(1, int(1_000 * LOOK_S / self.entry.processing_ms)))

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions came, perhaps none."""
        recorder, now_us = self.local.recorder, self.local.clock.now_us()
        if not self._is_member:
            self._is_member = True
            recorder.done(JOIN, self._joined_us, now_us)
        elif self._lost_us is not None:
            recorder.intended(REBALANCE)
            recorder.done(REBALANCE, self._lost_us, now_us)
        self._lost_us = None
        self.forget_order(list(partitions))

    def revoked(self) -> None:
        """Partitions go to others: what was read of them is committed."""
        self._lost_us = self.local.clock.now_us()
        if self._has_read:
            self._commit()

    def lost(self) -> None:
        """Others have the partitions already."""
        self._lost_us = self.local.clock.now_us()

    def _commit(self) -> None:
        recorder, clock = self.local.recorder, self.local.clock
        began_us = clock.now_us()
        recorder.intended(COMMIT)
        try:
            self.consumer.commit()
        except RebalanceInProgress:
            recorder.intended(COMMIT, -1)  # nothing is committed, and the group says how to go on
            return
        except (KafkaError, CommitFailed) as error:
            recorder.failed(COMMIT, describe(error))
            return
        self._has_read = False
        recorder.done(COMMIT, began_us, clock.now_us())


class _Moves(RebalanceListener):
    """Tells a user of its partitions."""

    def __init__(self, user: GroupUser) -> None:
        self._user = user

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._user.assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._user.revoked()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._user.lost()
