"""What clients of groups know: what they committed, what they were told, who owns what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.actors.ports import PartitionKey
from raylog.actors.simulation.properties import Checks, Property

NONE_STORED = -1


@dataclass(slots=True, eq=False)
class Commit:
    """One attempt to commit an offset."""

    offset: int
    sent_s: float
    acked_s: float | None = None
    is_refused: bool = False
    """Whether it surely has no effect."""


@dataclass(slots=True)
class Generation:
    """One generation of a classic group, as its members were told of it."""

    protocol: str | None
    assignments: dict[str, bytes] | None = None
    """What the leader wanted, by member."""
    synced_s: float | None = None
    """When the first member was told its assignment, which is stored by then."""


@dataclass(slots=True, eq=False)
class GroupLedger:
    """All that is known of one group.

    Requests of one partition's committers reach their coordinator in the order in which they were
    sent, for a client that gives up waiting gives up its connection as well. So what is stored is
    what was acknowledged last, or one of the attempts since.
    """

    group_id: str
    checks: Checks
    commits: dict[PartitionKey, list[Commit]] = field(default_factory=dict)
    generations: dict[tuple[int, str], Generation] = field(default_factory=dict)
    """By number and leader. As in Kafka, a generation is stored with its assignments: where the
    coordinator ends before, the next one counts to the same number."""
    fetched: int = 0
    """Offsets that were asked for and told."""

    # ---- offsets -------------------------------------------------------------------------

    def committing(self, key: PartitionKey, offset: int, now_s: float) -> Commit:
        """An offset is about to be committed."""
        commit = Commit(offset, now_s)
        self.commits.setdefault(key, []).append(commit)
        return commit

    def read(self, key: PartitionKey, offset: int, asked_s: float) -> None:
        """The group's offset was asked for and told; `asked_s` is when."""
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
        """What may be stored for somebody who asks at that time."""
        commits = [one for one in self.commits.get(key, ()) if not one.is_refused]
        acked = [one for one in commits if one.acked_s is not None and one.acked_s <= asked_s]
        last = max(acked, key=lambda one: one.sent_s, default=None)
        if last is None:
            return {NONE_STORED, *(one.offset for one in commits)}
        return {one.offset for one in commits if one.sent_s >= last.sent_s}

    # ---- classic groups ------------------------------------------------------------------

    def joined(self, generation_id: int, leader: str, protocol: str | None) -> None:
        """A member was told of a generation: all its members are told of the same protocol."""
        key = generation_id, leader
        known = self.generations.setdefault(key, Generation(protocol))
        same = known.protocol == protocol
        self.checks.hold(Property.ONE_GENERATION, same, self.group_id, *key, known, protocol)

    def assigning(self, generation_id: int, leader: str, assignments: dict[str, bytes]) -> None:
        """A generation's leader says who gets what."""
        self.generations[generation_id, leader].assignments = assignments

    def synced(
        self, generation_id: int, leader: str, member_id: str, got: bytes, now_s: float
    ) -> None:
        """A member was told its assignment, which has to be what the one leader wanted."""
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
        """A commit of a generation was taken: none that came after it had begun by then."""
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
    """Who owns which partitions of a group of the new protocol (KIP-848)."""

    ledger: GroupLedger
    session_s: float
    owned: dict[str, set[PartitionKey]] = field(default_factory=dict)
    """By member, from the answer that gave a partition until the member says it has it no more."""
    heard_s: dict[str, float] = field(default_factory=dict)
    """When each member sent the last heartbeat that was answered: it is in for a session more."""

    def heard(self, member_id: str, sent_s: float) -> None:
        """A member's heartbeat was answered."""
        self.heard_s[member_id] = sent_s

    def given(self, member_id: str, keys: Iterable[PartitionKey], now_s: float) -> None:
        """A member was told that it owns more."""
        for key in keys:
            others = [
                other
                for other, owned in self.owned.items()
                if other != member_id and key in owned and self._is_in(other, now_s)
            ]
            self.ledger.checks.hold(
                Property.ONE_OWNER, not others, self.ledger.group_id, key[1], member_id, others
            )
            self.owned.setdefault(member_id, set()).add(key)

    def _is_in(self, member_id: str, now_s: float) -> bool:
        return now_s < self.heard_s.get(member_id, 0.0) + self.session_s

    def kept(self, member_id: str, keys: Iterable[PartitionKey]) -> None:
        """A member is about to say that it owns these and no others."""
        self.owned[member_id] = set(keys)
