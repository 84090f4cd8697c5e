"""Groups from outside: who is in them, how far they have read, and changing that.

Groups speak one of two protocols: "classic" ones choose a leader among their members, which
assigns the partitions; in "consumer" ones (KIP-848) the coordinator does. Both keep committed
offsets alike. Changes are not repeated once they were sent, unless the coordinator said that it
did not carry them out or a repeat is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from raylog.client.admin.answers import names_in
from raylog.client.admin.group_descriptions import (
    GroupDescription,
    classic_description,
    consumer_description,
)
from raylog.client.admin.group_offsets import OFFSETS_BY_NAME, offsets_of_groups
from raylog.client.cluster import CommittedOffset as CommittedOffset
from raylog.client.cluster import Node, TopicPartition, by_topic
from raylog.client.coordinators import Coordinators, GroupAnswers, ask_coordinators
from raylog.client.core import Core
from raylog.client.errors import NotSupported
from raylog.client.matching import answers_to
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, GroupIdNotFound, KafkaError, error_of
from raylog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from raylog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from raylog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from raylog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from raylog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

T = TypeVar("T")

_STATES_SINCE = 4
"""ListGroups version that knows states (KIP-518)."""
_TYPES_SINCE = 5
"""ListGroups version that knows types (KIP-848)."""
_LEAVES_OF_SEVERAL_SINCE = 3
"""LeaveGroup version that takes several members, static ones too (KIP-345)."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group as its coordinator lists it; words are the broker's, "" from brokers too old."""

    group_id: str
    type: str
    """classic, consumer, share, streams."""
    protocol_type: str
    """ "consumer" for consumers; "" for a group that only has offsets."""
    state: str
    """Empty, Stable, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, Dead."""
    coordinator: int
    """Broker id."""


class GroupAdmin:
    """The operations on groups; each is one call of the blocking and of the asyncio client."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._coordinators = Coordinators(core)

    async def find_coordinators(self, group_ids: Iterable[str]) -> dict[str, Node]:
        """The current coordinator of each group, whether or not the group exists."""
        group_ids = names_in(group_ids, "groups")
        self._coordinators.forget(*group_ids)
        found = await self._core.repeat(lambda: self._coordinators.find(group_ids))
        return {group_id: self._core.cluster.nodes[node] for group_id, node in found.items()}

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Groups of all brokers, sorted by name. An empty filter matches all.

        Raises NotSupported if a broker is too old for a filter.
        """
        await self._core.repeat(lambda: self._core.refresh([]))
        found: dict[str, GroupListing] = {}
        for node_id in sorted(self._core.cluster.nodes):
            listed = await self._core.repeat(partial(self._list, node_id, states, types))
            found |= {group.group_id: group for group in listed}
        for group in found.values():
            self._coordinators.note(group.group_id, group.coordinator)
        return [found[group_id] for group_id in sorted(found)]

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of groups of both protocols; raises GroupIdNotFound."""
        wanted = list(dict.fromkeys(names_in(group_ids, "groups")))
        found: dict[str, GroupDescription | KafkaError] = {}
        if wanted and await self._knows_consumer_groups(wanted):
            found = await self._describe_consumer(wanted)
        others = [
            group_id
            for group_id in wanted
            if isinstance(found.get(group_id, GroupIdNotFound()), GroupIdNotFound)
        ]
        if others:
            found |= await self._describe_classic(others)
        return {group_id: _value(found[group_id]) for group_id in wanted}

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets (None: of all partitions), without partitions that have none.

        A group that does not exist has none. `require_stable` waits for open transactions that
        commit offsets (KIP-447).
        """
        found = await offsets_of_groups(
            self._core,
            self._coordinators,
            [group_id],
            partitions,
            require_stable=require_stable,
        )
        return _value(found[group_id])

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int]
    ) -> None:
        """Set the offsets of a group without members; raises UnknownMemberId if it has some.

        A group that does not exist is created.
        """
        if not offsets:
            return
        topics = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[_commit(key, offsets[key]) for key in keys]
            )
            for topic, keys in by_topic(offsets).items()
        ]

        def answers(response: OffsetCommitResponse) -> GroupAnswers[None]:
            told = (
                (TopicPartition(topic.name, answer.partition_index), answer.error_code)
                for topic in response.topics
                for answer in topic.partitions
            )
            codes = answers_to(offsets, told)
            yield group_id, _first_failure(_of_group(group_id, codes))

        found = await ask_coordinators(
            self._core,
            self._coordinators,
            [group_id],
            lambda group_ids, version: OffsetCommitRequest(group_id=group_id, topics=topics),
            OffsetCommitResponse,
            answers,
            at_most=OFFSETS_BY_NAME,
        )
        _value(found[group_id])

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Forget committed offsets (KIP-496); raises GroupSubscribedToTopic, GroupIdNotFound."""
        keys = list(partitions)
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=key.partition) for key in of_topic
                ],
            )
            for topic, of_topic in by_topic(keys).items()
        ]

        def answers(response: OffsetDeleteResponse) -> GroupAnswers[None]:
            failure = _first_failure([(response.error_code, f"group {group_id!r}")])
            if failure is None:
                told = (
                    (TopicPartition(topic.name, answer.partition_index), answer.error_code)
                    for topic in response.topics
                    for answer in topic.partitions
                )
                codes = answers_to(keys, told)
                failure = _first_failure(_of_group(group_id, codes))
            yield group_id, failure

        found = await ask_coordinators(
            self._core,
            self._coordinators,
            [group_id],
            lambda group_ids, version: OffsetDeleteRequest(group_id=group_id, topics=topics),
            OffsetDeleteResponse,
            answers,
        )
        _value(found[group_id])

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets; raises the first error.

        Errors are NonEmptyGroup and GroupIdNotFound; the other groups are deleted nevertheless.
        """
        wanted = list(dict.fromkeys(names_in(group_ids, "groups")))

        def answers(response: DeleteGroupsResponse) -> GroupAnswers[None]:
            for result in response.results:
                failure = _first_failure([(result.error_code, f"group {result.group_id!r}")])
                yield result.group_id, failure

        found = await ask_coordinators(
            self._core,
            self._coordinators,
            wanted,
            lambda group_ids, version: DeleteGroupsRequest(groups_names=group_ids),
            DeleteGroupsResponse,
            answers,
            repeat_lost=False,
        )
        for group_id in wanted:
            _value(found[group_id])

    async def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Remove static members by their `group.instance.id` (None: all members) from a group.

        A member that still runs joins again. `reason` goes to the broker's log (KIP-800). Raises
        the first error, such as UnknownMemberId; the other members are removed nevertheless.
        """
        if instance_ids is None:
            members = [
                MemberIdentity(member_id=member.member_id, reason=reason)
                for member in (await self.describe_groups([group_id]))[group_id].members
            ]
        else:
            members = [
                MemberIdentity(group_instance_id=instance_id, reason=reason)
                for instance_id in names_in(instance_ids, "group.instance.ids")
            ]
        if not members:
            return

        def request(_: list[str], version: int) -> LeaveGroupRequest:
            if version < _LEAVES_OF_SEVERAL_SINCE:
                raise NotSupported(
                    f"the coordinator of {group_id!r} is too old to remove members (before "
                    "Kafka 2.4)"
                )
            return LeaveGroupRequest(group_id=group_id, members=members)

        def answers(response: LeaveGroupResponse) -> GroupAnswers[None]:
            failure = _first_failure([(response.error_code, f"group {group_id!r}")])
            if failure is None:
                told = ((_member(one), one.error_code) for one in response.members)
                codes = answers_to(map(_member, members), told, _member_name)
                failure = _first_failure((code, _member_name(one)) for one, code in codes.items())
            yield group_id, failure

        found = await ask_coordinators(
            self._core,
            self._coordinators,
            [group_id],
            request,
            LeaveGroupResponse,
            answers,
            repeat_lost=False,
        )
        _value(found[group_id])

    # -- inside --------------------------------------------------------------------------------

    async def _list(
        self, node_id: int, states: Collection[str], types: Collection[str]
    ) -> list[GroupListing]:
        """The groups of one broker."""
        version = await self._core.version_on(node_id, ApiKey.LIST_GROUPS)
        needed = _TYPES_SINCE if types else _STATES_SINCE if states else 0
        if version < needed:
            what = "types" if types else "states"
            raise NotSupported(f"broker {node_id} is too old to filter groups by {what}")
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = await self._core.ask(node_id, request, ListGroupsResponse)
        if response.error_code != ErrorCode.NONE:
            raise error_of(response.error_code, f"groups of broker {node_id}")
        return [
            GroupListing(
                group.group_id, group.group_type, group.protocol_type, group.group_state, node_id
            )
            for group in response.groups
        ]

    async def _knows_consumer_groups(self, group_ids: list[str]) -> bool:
        """Whether the brokers speak KIP-848."""
        nodes = await self._core.repeat(lambda: self._coordinators.find(group_ids))
        versions = await self._core.api_versions(next(iter(nodes.values())))
        return ApiKey.CONSUMER_GROUP_DESCRIBE in versions

    async def _describe_consumer(
        self, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups as KIP-848 ones; GroupIdNotFound for those that are not."""

        def answers(response: ConsumerGroupDescribeResponse) -> GroupAnswers[GroupDescription]:
            for group in response.groups:
                if group.error_code != ErrorCode.NONE:
                    yield (
                        group.group_id,
                        _refusal(group.group_id, group.error_code, group.error_message),
                    )
                else:
                    yield group.group_id, consumer_description(group)

        return await ask_coordinators(
            self._core,
            self._coordinators,
            group_ids,
            lambda names, version: ConsumerGroupDescribeRequest(group_ids=names),
            ConsumerGroupDescribeResponse,
            answers,
        )

    async def _describe_classic(
        self, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups as classic ones."""

        def answers(response: DescribeGroupsResponse) -> GroupAnswers[GroupDescription]:
            for group in response.groups:
                name = group.group_id
                if group.error_code != ErrorCode.NONE:
                    yield name, _refusal(name, group.error_code, group.error_message)
                elif group.group_state == "Dead":
                    yield name, _refusal(name, ErrorCode.GROUP_ID_NOT_FOUND, "it does not exist")
                else:
                    yield name, classic_description(group)

        return await ask_coordinators(
            self._core,
            self._coordinators,
            group_ids,
            lambda names, version: DescribeGroupsRequest(groups=names),
            DescribeGroupsResponse,
            answers,
        )


def _commit(key: TopicPartition, offset: CommittedOffset | int) -> OffsetCommitRequestPartition:
    """One partition of a commit."""
    if isinstance(offset, int):
        offset = CommittedOffset(offset)
    return OffsetCommitRequestPartition(
        partition_index=key.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _of_group(group_id: str, codes: Mapping[TopicPartition, int]) -> Iterable[tuple[int, str]]:
    """Codes, each with what it is about."""
    return ((code, f"{key} of {group_id!r}") for key, code in codes.items())


def _member(one: MemberIdentity | MemberResponse) -> tuple[str | None, str]:
    """Whom LeaveGroup means: a static member by its instance id, another one by its member id."""
    return one.group_instance_id, "" if one.group_instance_id else one.member_id


def _member_name(member: tuple[str | None, str]) -> str:
    instance_id, member_id = member
    return f"member {instance_id or member_id!r}"


def _first_failure(outcomes: Iterable[tuple[int, str]]) -> KafkaError | None:
    """The first error among (code, what it is about)."""
    for code, what in outcomes:
        if code != ErrorCode.NONE:
            return error_of(code, what)
    return None


def _refusal(group_id: str, code: int, message: str | None) -> KafkaError:
    """What a coordinator says about one group."""
    return error_of(code, f"group {group_id!r}: {message}" if message else f"group {group_id!r}")


def _value(answer: T | KafkaError) -> T:
    """An answer; raises one that is an error."""
    if isinstance(answer, KafkaError):
        raise answer
    return answer
