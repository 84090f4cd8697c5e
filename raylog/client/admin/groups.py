"""Groups as seen from outside: their members and offsets, and operations to change them.

A group uses one of two protocols. In a "classic" group a leader elected among the members assigns
the partitions; in a "consumer" group (KIP-848) the coordinator does. Committed offsets work the
same in both. Changes are not retried once they were sent, unless the coordinator said that it did
not carry them out, or repeating them is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from raylog.client.admin.base import Operations, names_in
from raylog.client.admin.group_descriptions import (
    GroupDescription,
    classic_description,
    consumer_description,
)
from raylog.client.admin.group_offsets import (
    OFFSETS_BY_NAME,
    commit_refusal,
    offset_commit,
    offsets_of_groups,
)
from raylog.client.cluster import CommittedOffset as CommittedOffset
from raylog.client.cluster import Node, TopicPartition, by_topic
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators, GroupAnswers, ask_coordinators
from raylog.client.core import Core
from raylog.client.errors import NotSupported
from raylog.client.matching import answers_to
from raylog.client.refusals import check, refusal, value
from raylog.client.retries import worst_refusal
from raylog.wire.api import ApiKey
from raylog.wire.errors import GroupIdNotFound, KafkaError
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
"""First ListGroups version with states (KIP-518)."""
_TYPES_SINCE = 5
"""First ListGroups version with types (KIP-848)."""
_LEAVES_OF_SEVERAL_SINCE = 3
"""First LeaveGroup version that accepts several members, and static ones (KIP-345)."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group as listed by its coordinator, in its words; "" from brokers that are too old."""

    group_id: str
    type: str
    """classic, consumer, share, streams."""
    protocol_type: str
    """ "consumer" for consumers; "" for a group that only has offsets."""
    state: str
    """Empty, Stable, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, Dead."""
    coordinator: int
    """The coordinator's broker id."""


class GroupAdmin(Operations):
    """The operations on groups; the blocking and the asyncio client offer each as one call."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._coordinators = Coordinators(core)

    async def find_coordinators(self, group_ids: Iterable[str]) -> dict[str, Node]:
        """Return the current coordinator of each group, whether or not the group exists."""
        group_ids = names_in(group_ids, "groups")
        self._coordinators.forget(*group_ids)
        found = await self._core.repeat(lambda: self._coordinators.find(group_ids))
        return {group_id: self._core.cluster.nodes[node] for group_id, node in found.items()}

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name. An empty filter matches all.

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
        """Return state and members of groups of both protocols; raises GroupIdNotFound."""
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
        return {group_id: value(found[group_id]) for group_id in wanted}

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return committed offsets (None: of all partitions); omit partitions without one.

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
        return value(found[group_id])

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int]
    ) -> None:
        """Set the offsets of a group without members; raises UnknownMemberId if it has members.

        A group that does not exist is created.
        """
        if not offsets:
            return

        def answers(response: OffsetCommitResponse) -> GroupAnswers[None]:
            yield group_id, commit_refusal(response, group_id, offsets)

        found = await ask_coordinators(
            self._core,
            self._coordinators,
            [group_id],
            lambda group_ids, version: offset_commit(GroupMetadata(group_id), offsets),
            OffsetCommitResponse,
            answers,
            at_most=OFFSETS_BY_NAME,
        )
        value(found[group_id])

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Delete committed offsets (KIP-496); raises GroupSubscribedToTopic, GroupIdNotFound."""
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
            failure = refusal(response.error_code, f"group {group_id!r}")
            if failure is None:
                pairs = (
                    (TopicPartition(topic.name, answer.partition_index), answer.error_code)
                    for topic in response.topics
                    for answer in topic.partitions
                )
                failure = worst_refusal(
                    (code, f"{key} of group {group_id!r}")
                    for key, code in answers_to(keys, pairs).items()
                )
            yield group_id, failure

        found = await ask_coordinators(
            self._core,
            self._coordinators,
            [group_id],
            lambda group_ids, version: OffsetDeleteRequest(group_id=group_id, topics=topics),
            OffsetDeleteResponse,
            answers,
        )
        value(found[group_id])

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets; raises the first error.

        Errors are NonEmptyGroup and GroupIdNotFound; the other groups are deleted in any case.
        """
        wanted = list(dict.fromkeys(names_in(group_ids, "groups")))

        def answers(response: DeleteGroupsResponse) -> GroupAnswers[None]:
            for result in response.results:
                yield result.group_id, refusal(result.error_code, f"group {result.group_id!r}")

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
            value(found[group_id])

    async def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Remove static members by their `group.instance.id` (None: all members) from a group.

        A member that is still running rejoins. `reason` goes to the broker's log (KIP-800). Raises
        the first error, such as UnknownMemberId; the other members are removed in any case.
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
            failure = refusal(response.error_code, f"group {group_id!r}")
            if failure is None:
                pairs = ((_member(one), one.error_code) for one in response.members)
                codes = answers_to(map(_member, members), pairs, _member_name)
                failure = worst_refusal((code, _member_name(one)) for one, code in codes.items())
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
        value(found[group_id])

    # -- inside --------------------------------------------------------------------------------

    async def _list(
        self, node_id: int, states: Collection[str], types: Collection[str]
    ) -> list[GroupListing]:
        """Return the groups of one broker."""
        version = await self._core.version_on(node_id, ApiKey.LIST_GROUPS)
        needed = _TYPES_SINCE if types else _STATES_SINCE if states else 0
        if version < needed:
            what = "types" if types else "states"
            raise NotSupported(f"broker {node_id} is too old to filter groups by {what}")
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = await self._core.ask(node_id, request, ListGroupsResponse)
        check(response.error_code, f"groups of broker {node_id}")
        return [
            GroupListing(
                group.group_id, group.group_type, group.protocol_type, group.group_state, node_id
            )
            for group in response.groups
        ]

    async def _knows_consumer_groups(self, group_ids: list[str]) -> bool:
        """Whether the brokers support KIP-848."""
        nodes = await self._core.repeat(lambda: self._coordinators.find(group_ids))
        versions = await self._core.api_versions(next(iter(nodes.values())))
        return ApiKey.CONSUMER_GROUP_DESCRIBE in versions

    async def _describe_consumer(
        self, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups that use KIP-848; GroupIdNotFound for groups that do not."""
        return await ask_coordinators(
            self._core,
            self._coordinators,
            group_ids,
            lambda names, version: ConsumerGroupDescribeRequest(group_ids=names),
            ConsumerGroupDescribeResponse,
            partial(_descriptions, described=consumer_description),
        )

    async def _describe_classic(
        self, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups that use the classic protocol."""
        return await ask_coordinators(
            self._core,
            self._coordinators,
            group_ids,
            lambda names, version: DescribeGroupsRequest(groups=names),
            DescribeGroupsResponse,
            partial(_descriptions, described=classic_description),
        )


def _descriptions(
    response: Any, described: Callable[[Any], GroupDescription]
) -> GroupAnswers[GroupDescription]:
    for group in response.groups:
        what = f"group {group.group_id!r}"
        error = refusal(group.error_code, what, group.error_message)
        if error is None and group.group_state == "Dead":
            error = GroupIdNotFound(f"{what}: it does not exist")
        yield group.group_id, error or described(group)


def _member(one: MemberIdentity | MemberResponse) -> tuple[str | None, str]:
    """Identify a member for LeaveGroup: by its instance id if static, else by its member id."""
    return one.group_instance_id, "" if one.group_instance_id else one.member_id


def _member_name(member: tuple[str | None, str]) -> str:
    instance_id, member_id = member
    return f"member {instance_id or member_id!r}"
