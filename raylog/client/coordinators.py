"""Who coordinates a group or a transactional id: FindCoordinator v0-6, and asking coordinators.

A coordinator moves with the partition of `__consumer_offsets` or `__transaction_state` that it
leads. NOT_COORDINATOR and
COORDINATOR_NOT_AVAILABLE say that it moved or is not elected yet: it is looked for again.
COORDINATOR_LOAD_IN_PROGRESS says that it is the right one, and not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from raylog.client.cluster import Node
from raylog.client.core import Core, is_retriable
from raylog.client.errors import ClientError, NotConnected, NotKafka
from raylog.client.matching import answers_to, named
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raylog.wire.schema import layout_of

T = TypeVar("T")
R = TypeVar("R")
GroupAnswers = Iterable[tuple[str, T | KafkaError]]

_BATCHES_SINCE = 4
"""FindCoordinator version that takes several keys (KIP-699)."""
_RETRIABLE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Refusals after which the request was not carried out and may be repeated."""
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Refusals of a broker that does not coordinate the group, or not yet."""


class KeyType(IntEnum):
    """What is coordinated, numbered as in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """The coordinators of groups, or transactional ids, as far as they are known to one client."""

    def __init__(self, core: Core, key_type: KeyType = KeyType.GROUP) -> None:
        self._core = core
        self._key_type = key_type
        self._known: dict[str, int] = {}

    async def find(self, group_ids: Iterable[str]) -> dict[str, int]:
        """Broker id by group; raises CoordinatorNotAvailable and what else brokers answer."""
        wanted = list(dict.fromkeys(group_ids))
        found = {group_id: self._known[group_id] for group_id in wanted if group_id in self._known}
        unknown = [group_id for group_id in wanted if group_id not in found]
        if unknown:
            found |= await self._ask(unknown)
        return found

    def note(self, group_id: str, node_id: int) -> None:
        """A broker has listed the group, so it coordinates it."""
        self._known[group_id] = node_id

    def forget(self, *group_ids: str) -> None:
        """The coordinator of these groups is somewhere else, or cannot be reached."""
        for group_id in group_ids:
            self._known.pop(group_id, None)

    async def _ask(self, group_ids: Sequence[str]) -> dict[str, int]:
        """Ask any broker for the coordinators; another task may forget them meanwhile."""
        found: dict[str, int] = {}
        node_id = await self._core.any_node()
        if await self._core.version_on(node_id, ApiKey.FIND_COORDINATOR) < _BATCHES_SINCE:
            for group_id in group_ids:
                alone = FindCoordinatorRequest(key=group_id, key_type=self._key_type)
                one = await self._core.ask(node_id, alone, FindCoordinatorResponse)
                found[group_id] = self._take(group_id, one)
            return found
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=list(group_ids))
        response = await self._core.ask(node_id, request, FindCoordinatorResponse)
        for answer in response.coordinators:
            if answer.key in group_ids:  # else nobody has asked
                found[answer.key] = self._take(answer.key, answer)
        missing = [group_id for group_id in group_ids if group_id not in found]
        if missing:
            raise NotKafka(f"expected the coordinators of {missing}, found no word about them")
        return found

    def _take(self, group_id: str, answer: Coordinator | FindCoordinatorResponse) -> int:
        """Take one answer: the broker's address too, which metadata may not have yet."""
        if answer.error_code != ErrorCode.NONE:
            told = f": {answer.error_message}" if answer.error_message else ""
            raise error_of(
                answer.error_code,
                f"coordinator of {self._key_type.name.lower()} {group_id!r}{told}",
            )
        nodes = self._core.cluster.nodes
        known = nodes.get(answer.node_id)
        if known is None or (known.host, known.port) != (answer.host, answer.port):
            nodes[answer.node_id] = Node(answer.node_id, answer.host, answer.port)
        self._known[group_id] = answer.node_id
        return answer.node_id


async def coordinator_version(
    core: Core,
    coordinators: Coordinators,
    key: str,
    api_key: ApiKey,
    *,
    at_most: int | None = None,
    timeout_ms: float | None = None,
) -> int:
    """The version of an API that the coordinator of one key is asked in, wherever it moves."""

    async def attempt() -> int:
        node_id = (await coordinators.find([key]))[key]
        try:
            return await core.version_on(node_id, api_key, at_most)
        except ClientError:
            coordinators.forget(key)
            raise

    return await core.repeat(attempt, timeout_ms=timeout_ms)


async def ask_coordinator(
    core: Core,
    coordinators: Coordinators,
    key: str,
    request: object,
    expected: type[R],
    refusal: Callable[[R], KafkaError | None],
    *,
    at_most: int | None = None,
    timeout_ms: float | None = None,
) -> R:
    """Ask the coordinator of one key, wherever it moves, until it does not ask for patience.

    `refusal` finds the error in an answer; one that a repeat does not cure is raised. The request
    must be harmless to repeat: a lost answer leaves it unknown whether it was carried out.
    """

    async def attempt() -> R:
        node_id = (await coordinators.find([key]))[key]
        try:
            response = await core.ask(node_id, request, expected, at_most=at_most)
        except ClientError:
            coordinators.forget(key)
            raise
        error = refusal(response)
        if error is None:
            return response
        if error.code in _MOVED:
            coordinators.forget(key)
        raise error

    return await core.repeat(attempt, timeout_ms=timeout_ms)


async def ask_coordinators(
    core: Core,
    coordinators: Coordinators,
    group_ids: Iterable[str],
    request: Callable[[list[str], int], object],
    expected: type[R],
    answers: Callable[[R], GroupAnswers[T]],
    *,
    at_most: int | None = None,
    repeat_lost: bool = True,
) -> dict[str, T | KafkaError]:
    """Ask each coordinator about its groups; repeat for those that were not dealt with.

    `request` makes the request for some groups at a version (`at_most` bounds it). Each group
    succeeds or fails on its own. Where the outcome is unknown because an answer was
    lost, the request is repeated only if `repeat_lost`: it must be harmless then.
    """
    api_key = layout_of(expected).api_key
    assert api_key is not None, f"{expected.__name__} is not a response"
    answered = _Answered[T](coordinators, set(group_ids))

    def may_repeat(error: Exception) -> bool:
        if isinstance(error, KafkaError):
            return error.code in _RETRIABLE
        return is_retriable(error) if repeat_lost else isinstance(error, NotConnected)

    async def ask(node_id: int, of_node: list[str]) -> R:
        version = await core.version_on(node_id, api_key, at_most)
        return await core.ask(node_id, request(of_node, version), expected, at_most=version)

    async def attempt() -> None:
        failures: list[Exception] = []
        for node_id, of_node in _by_node(await coordinators.find(sorted(answered.left))).items():
            try:
                told = answers(await ask(node_id, of_node))
                failures += answered.take(answers_to(of_node, told, named("group")))
            except ClientError as error:
                coordinators.forget(*of_node)
                failures.append(error)
        if failures:
            raise min(failures, key=may_repeat)  # what no repeat cures comes first

    await core.repeat(attempt, retriable=may_repeat)
    return answered.results


@dataclass(slots=True)
class _Answered(Generic[T]):
    """Which groups have their final answer."""

    coordinators: Coordinators
    left: set[str]
    results: dict[str, T | KafkaError] = field(default_factory=dict)

    def take(self, answers: Mapping[str, T | KafkaError]) -> list[KafkaError]:
        """Keep final answers; returns the refusals after which to ask again."""
        refusals = []
        for group_id, answer in answers.items():
            if isinstance(answer, KafkaError) and answer.code in _RETRIABLE:
                refusals.append(answer)
                if answer.code in _MOVED:
                    self.coordinators.forget(group_id)
            else:
                self.results[group_id] = answer
                self.left.discard(group_id)
        return refusals


def _by_node(found: dict[str, int]) -> dict[int, list[str]]:
    """Group ids by the broker that coordinates them."""
    grouped: dict[int, list[str]] = {}
    for group_id, node_id in found.items():
        grouped.setdefault(node_id, []).append(group_id)
    return grouped
