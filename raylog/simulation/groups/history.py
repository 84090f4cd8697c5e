"""What clients of groups know: their commits, the answers, and who owns what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.actors.common_messages import PartitionKey
from raylog.simulation.properties import Checks, Property

NONE_STORED = -1


@dataclass(slots=True, eq=False)
class Commit:
    """One attempt to commit an offset."""

    offset: int
    sent_s: float
    acked_s: float | None = None
    is_refused: bool = False
    """Whether it certainly has no effect."""


@dataclass(slots=True)
class Generation:
    """One generation of a classic group, as its members know it."""

    protocol: str | None
    assignments: dict[str, bytes] | None = None
    """The leader's assignments by member."""
    synced_s: float | None = None
    """When the first member got its assignment. The assignment is stored by then."""


@dataclass(slots=True, eq=False)
class GroupLedger:
    """What is known about one group.

    The requests of one partition's committers reach their coordinator in the order in which they
    were sent, because a client that gives up waiting also closes its connection. So the stored
    offset is the last acknowledged one, or one of the later attempts.
    """

    group_id: str
    checks: Checks
    commits: dict[PartitionKey, list[Commit]] = field(default_factory=dict)
    generations: dict[tuple[int, str], Generation] = field(default_factory=dict)
    """By generation id and leader. As in Kafka, a generation is stored together with its
    assignments. If the coordinator ends before that, the next generation has the same id."""
    fetched: int = 0
    """The number of answered offset fetches."""

    # ---- offsets -------------------------------------------------------------------------

    def committing(self, key: PartitionKey, offset: int, now_s: float) -> Commit:
        """Note that an offset is about to be committed."""
        commit = Commit(offset, now_s)
        self.commits.setdefault(key, []).append(commit)
        return commit

    def read(self, key: PartitionKey, offset: int, asked_s: float) -> None:
        """Check a fetched offset of the group; `asked_s` is the time of the request."""
        self.fetched += 1
        foreign = [
            topic_id.hex()
            for (topic_id, partition), commits in self.commits.items()
            if topic_id != key[0]
            and partition == key[1]
            and any(one.offset == offset for one in commits)
        ]
        possible = self.possible(key, asked_s)
        right = offset in possible
        details = (self.group_id, key[0].hex(), key[1], f"has {offset}")
        hold = self.checks.hold
        hold(Property.OFFSETS_OF_TOPIC, right or not foreign, *details, "which is of", foreign)
        hold(Property.OFFSETS_FORWARD, right or bool(foreign), *details, sorted(possible)[:5])

    def possible(self, key: PartitionKey, asked_s: float) -> set[int]:
        """The offsets that may be stored for a request sent at that time."""
        commits = [one for one in self.commits.get(key, ()) if not one.is_refused]
        acked = [one for one in commits if one.acked_s is not None and one.acked_s <= asked_s]
        last = max(acked, key=lambda one: one.sent_s, default=None)
        if last is None:
            return {NONE_STORED, *(one.offset for one in commits)}
        return {one.offset for one in commits if one.sent_s >= last.sent_s}

    # ---- classic groups ------------------------------------------------------------------

    def joined(self, generation_id: int, leader: str, protocol: str | None) -> None:
        """Check a generation that a member was told of: all its members have one protocol."""
        key = generation_id, leader
        known = self.generations.setdefault(key, Generation(protocol))
        same = known.protocol == protocol
        self.checks.hold(Property.ONE_GENERATION, same, self.group_id, *key, known, protocol)

    def assigning(self, generation_id: int, leader: str, assignments: dict[str, bytes]) -> None:
        """Note the assignments that a generation's leader sends."""
        self.generations[generation_id, leader].assignments = assignments

    def synced(
        self, generation_id: int, leader: str, member_id: str, got: bytes, now_s: float
    ) -> None:
        """Check that a member got the assignment that the leader sent."""
        known = self.generations[generation_id, leader]
        known.synced_s = now_s if known.synced_s is None else known.synced_s
        others = [
            other
            for (number, other), one in self.generations.items()
            if number == generation_id and other != leader and one.synced_s is not None
        ]
        details = (self.group_id, generation_id, member_id)
        self.checks.hold(Property.ONE_GENERATION, not others, *details, leader, others)
        wanted = (known.assignments or {}).get(member_id)
        self.checks.hold(Property.ONE_OWNER, got == wanted, *details, "was told other partitions")

    def acked_in(self, generation_id: int, commit: Commit) -> None:
        """Check that a commit was accepted before any later generation had begun."""
        later = [
            other
            for (other, _), one in self.generations.items()
            if other > generation_id and one.synced_s is not None and one.synced_s < commit.sent_s
        ]
        self.checks.hold(
            Property.MEMBERS_FENCED, not later, self.group_id, generation_id, "is over since", later
        )


@dataclass(slots=True, eq=False)
class Ownership:
    """The owners of partitions in a consumer group (KIP-848)."""

    ledger: GroupLedger
    session_s: float
    owned: dict[str, set[PartitionKey]] = field(default_factory=dict)
    """By member, from the answer that assigns a partition until the member gives it up."""
    contact_s: dict[str, float] = field(default_factory=dict)
    """When each member sent its last answered heartbeat. It is a member for a session more."""
    late: dict[str, set[PartitionKey]] = field(default_factory=dict)
    """By member, partitions of answers that took longer than a session."""

    def answered(self, member_id: str, sent_s: float, now_s: float) -> None:
        """Note that a member's heartbeat was answered: it still owns what a late answer gave it."""
        self.contact_s[member_id] = sent_s
        if self._is_in(member_id, now_s):
            self._check(member_id, self.late.pop(member_id, ()), now_s)

    def given(self, member_id: str, keys: Iterable[PartitionKey], now_s: float) -> None:
        """Check partitions that a member was told it owns now.

        After an answer that took longer than a session, the member may have lost them already,
        which only its next heartbeat shows.
        """
        more = set(keys)
        if self._is_in(member_id, now_s):
            self._check(member_id, more, now_s)
        else:
            self.late.setdefault(member_id, set()).update(more)
        self.owned.setdefault(member_id, set()).update(more)

    def _check(self, member_id: str, keys: Iterable[PartitionKey], now_s: float) -> None:
        for key in keys:
            others = [
                other
                for other, owned in self.owned.items()
                if other != member_id and key in owned and self._is_in(other, now_s)
            ]
            self.ledger.checks.hold(
                Property.ONE_OWNER, not others, self.ledger.group_id, key[1], member_id, others
            )

    def _is_in(self, member_id: str, now_s: float) -> bool:
        return now_s < self.contact_s.get(member_id, 0.0) + self.session_s

    def kept(self, member_id: str, keys: Iterable[PartitionKey]) -> None:
        """Note that a member is about to report these partitions and no others."""
        self.owned[member_id] = set(keys)
