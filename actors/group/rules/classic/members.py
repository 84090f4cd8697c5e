"""The members of a classic group, their protocols, and their waiting requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from raylog.actors.coordination.rules.step import ClientCall
from raylog.wire.errors import FencedInstanceId, UnknownMemberId
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.sync_group import SyncGroupRequest

_HASH_MASK = 0xFFFFFFFF
_BUCKETS_MIN = 16


@dataclass(slots=True)
class Member:
    """One member, as of its last join."""

    member_id: str
    instance_id: str | None
    """None for a dynamic member (KIP-345)."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """Metadata by protocol, in order of preference. After a load only the chosen protocol is
    known."""
    assignment: bytes = b""
    is_new: bool = False
    """Whether it is in its first join, so that it does not know its id and cannot send
    heartbeats."""

    def supports_exactly(self, protocols: Mapping[str, bytes]) -> bool:
        """Whether these are its protocols, in the same order and with the same metadata."""
        return list(self.protocols.items()) == list(protocols.items())


@dataclass(slots=True)
class Roster:
    """The members and their waiting requests, by member id.

    Invariants: the leader is a member; all who join or sync are members; pending ids are not.
    """

    protocol_type: str | None = None
    """The type of the current or last members; None before the first member."""
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    """In the order in which they joined."""
    pending: set[str] = field(default_factory=set)
    """Ids that were assigned but not used yet (KIP-394)."""
    unsynced: set[str] = field(default_factory=set)
    """Members of this generation that have not requested their assignment."""
    joining: dict[str, ClientCall[JoinGroupRequest]] = field(default_factory=dict)
    syncing: dict[str, ClientCall[SyncGroupRequest]] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Member id by instance id."""
    _supporters: Counter[str] = field(default_factory=Counter)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a new member; the first one leads and sets the protocol type."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(member.protocols.keys())
        self.pending.discard(member.member_id)

    def change(
        self, member: Member, protocols: dict[str, bytes], session_ms: int, rebalance_ms: int
    ) -> None:
        """Update a known member from a further join."""
        self._supporters.update(protocols.keys())
        self._support_no_longer(member)
        member.protocols = protocols
        member.session_timeout_ms = session_ms
        member.rebalance_timeout_ms = rebalance_ms

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. The longest-standing member succeeds a leader."""
        assert member_id not in self.joining, "who waits is answered first"
        assert member_id not in self.syncing, "who waits is answered first"
        member = self.members.pop(member_id, None)
        if member is not None:
            self._support_no_longer(member)
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)

    def _support_no_longer(self, member: Member) -> None:
        for name in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def rename(self, old_id: str, new_id: str) -> Member:
        """Hand a static member's place, and its leadership, to the new instance."""
        assert old_id not in self.joining, "who waits is answered first"
        assert old_id not in self.syncing, "who waits is answered first"
        old = self.members[old_id]
        assert old.instance_id is not None
        member = replace(old, member_id=new_id, is_new=False)
        # Keep its position in the order of joining.
        self.members = {
            known.member_id if known is not old else new_id: known if known is not old else member
            for known in self.members.values()
        }
        self.static_ids[old.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self.unsynced.discard(old_id)
        return member

    def member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that these ids name.

        Raises UnknownMemberId, or FencedInstanceId if another member has the instance id.
        """
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"no member is instance {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"instance {instance_id} is {current}, not {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id} is no member")
        return member

    def supports(self, protocols: Iterable[str]) -> bool:
        """Whether every member supports at least one of these protocols."""
        return any(self._supporters[name] == len(self.members) for name in protocols)

    def all_joined(self) -> bool:
        """Whether every member waits in a join and every assigned id has been used."""
        return len(self.joining) == len(self.members) and not self.pending

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has rejoined; return False if no member has."""
        if self.leader is None:
            return False
        if self.leader not in self.joining:
            self.leader = next((name for name in self.members if name in self.joining), self.leader)
        return self.leader in self.joining

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of all members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def vote(self) -> str:
        """Choose the protocol for the next generation.

        Candidates are the protocols that all members support. Each member votes for its first
        candidate, and the candidate with most votes wins. A tie goes to the one that comes first in
        a Java HashMap, as in Kafka.
        """
        candidates = {name for name in self._supporters if self.supports((name,))}
        votes = Counter(
            next(name for name in member.protocols if name in candidates)
            for member in self.members.values()
        )
        return max(_hash_map_order(votes), key=votes.__getitem__)


def _hash_map_order(names: Iterable[str]) -> list[str]:
    """Order names as a Java HashMap iterates over them: by bucket, then by insertion."""
    found = list(names)
    buckets = _BUCKETS_MIN
    while len(found) * 4 > buckets * 3:
        buckets *= 2
    return sorted(found, key=lambda name: _spread_hash(name) % buckets)


def _spread_hash(text: str) -> int:
    """Return Java's String.hashCode over UTF-16, with its upper half folded into the lower."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8) + units[position + 1]) & _HASH_MASK
    return value ^ value >> 16
