"""The range assignor: each member gets consecutive partitions of each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.members import as_assignment, served_order, subscribers
from raylog.assignors.racks import Nearness, nearness, racks_matter

Given = list[dict[str, list[int]]]


class RangeAssignor(Assignor):
    """Divides each topic on its own into ranges, larger ones first.

    Topics with equal partition counts and the same subscribers are divided alike, so that a member
    gets the same partition numbers of each (joins rely on that). If racks are known and differ
    between members (KIP-881), each member first gets partitions with a replica in its rack, up to
    the size of its range. Topics that are divided alike stay so: if racks matter to one of them,
    all are matched to racks together.
    """

    name = "range"

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        ordered = served_order(members)
        given: Given = [{} for _ in ordered]
        alike: dict[tuple[int, int], list[Topic]] = {}
        by_rack: set[str] = set()
        subscribed_to = subscribers(ordered, topics)
        for name, subscribed in subscribed_to.items():
            topic = topics[name]
            # Equal lists of subscribers are the same object.
            alike.setdefault((id(subscribed), topic.partitions), []).append(topic)
            if racks_matter(ordered, subscribed, topic):
                by_rack.add(name)
        for together in alike.values():
            subscribed = subscribed_to[together[0].name]
            if by_rack and (len(together) > 1 or together[0].name in by_rack):
                _give_by_rack(given, ordered, subscribed, together)
            else:
                for topic in together:
                    _give_spans(given, topic, subscribed)
        return as_assignment(ordered, given)


def _give_spans(given: Given, topic: Topic, members: list[int]) -> None:
    """Divide a topic for which racks make no difference."""
    span, larger_spans = divmod(topic.partitions, len(members))
    start = 0
    for place, member in enumerate(members):
        if start == topic.partitions:
            break
        end = start + span + (1 if place < larger_spans else 0)
        given[member][topic.name] = list(range(start, end))
        start = end


class _Share:
    """The division of one topic for which racks make a difference."""

    def __init__(self, topic: Topic, members: list[int], near: Nearness) -> None:
        self.topic = topic
        self.members = members
        self.near = near
        self.given: dict[int, list[int]] = {}
        self._span, self._larger_spans = divmod(topic.partitions, len(members))
        self._left = dict.fromkeys(range(topic.partitions))  # in order, and fast to remove from

    def room(self, member: int) -> int:
        """How many more partitions the member may get."""
        allowed = self._span + (1 if self._larger_spans > 0 else 0)
        return max(0, allowed - len(self.given.get(member, ())))

    def give(self, member: int, partitions: list[int]) -> None:
        """Assign some of the remaining partitions."""
        has = self.given.setdefault(member, [])
        has += partitions
        if len(has) > self._span:
            self._larger_spans -= 1
        for partition in partitions:
            del self._left[partition]

    def give_spans(self, may: Nearness) -> None:
        """Give each member in turn the first partitions that it may have, up to its room."""
        for member in self.members:
            if not self._left:
                break
            room = self.room(member)
            if room:
                fitting = (partition for partition in self._left if may(member, partition))
                self.give(member, list(islice(fitting, room)))


def _give_by_rack(
    given: Given, members: Sequence[Member], subscribed: list[int], topics: Sequence[Topic]
) -> None:
    """Divide topics of equal size among the same members, close partitions first."""
    shares = [_Share(topic, subscribed, nearness(members, topic)) for topic in topics]
    if len(shares) > 1:
        _together(shares)
    else:
        shares[0].give_spans(shares[0].near)
    for share in shares:
        share.give_spans(lambda member, partition: True)
        for member, partitions in share.given.items():
            given[member][share.topic.name] = partitions


def _together(shares: list[_Share]) -> None:
    """Assign each partition number to the first member that is close to it in every topic."""
    members = list(shares[0].members)
    for partition in range(shares[0].topic.partitions):
        fitting = (member for member in members if _fits(shares, member, partition))
        member = next(fitting, None)
        if member is not None:
            for share in shares:
                share.give(member, [partition])
            if not any(share.room(member) for share in shares):
                members.remove(member)


def _fits(shares: list[_Share], member: int, partition: int) -> bool:
    """Whether the member has room for the partition in every topic, and is close to it."""
    return all(share.room(member) and share.near(member, partition) for share in shares)
