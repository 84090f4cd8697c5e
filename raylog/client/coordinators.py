"""Find the coordinators of groups and transactional ids (FindCoordinator v0-6), and ask them.

A coordinator moves with the leader of its partition of `__consumer_offsets` or
`__transaction_state`. After NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE it has moved or is not
elected yet, so the client looks it up again. After COORDINATOR_LOAD_IN_PROGRESS it has not moved,
but is not ready.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from raylog.client.cluster import Node
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotConnected, NotKafka
from raylog.client.matching import answers_to, named
from raylog.client.refusals import check
from raylog.client.retries import (
    COORDINATOR_BUSY,
    has_coordinator_moved,
    is_retriable,
    worst,
)
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError
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
"""First FindCoordinator version that accepts several keys (KIP-699)."""


class KeyType(IntEnum):
    """Type of a coordinator's key, as numbered in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """A client's cache of the coordinators of groups or transactional ids."""

    def __init__(self, core: Core, key_type: KeyType = KeyType.GROUP) -> None:
        self._core = core
        self._key_type = key_type
        self._known: dict[str, int] = {}

    async def find(self, group_ids: Iterable[str]) -> dict[str, int]:
        """Return broker ids by group; raises CoordinatorNotAvailable and other broker errors."""
        wanted = list(dict.fromkeys(group_ids))
        found = {group_id: self._known[group_id] for group_id in wanted if group_id in self._known}
        unknown = [group_id for group_id in wanted if group_id not in found]
        if unknown:
            found |= await self._ask(unknown)
        return found

    def note(self, group_id: str, node_id: int) -> None:
        """Cache the broker that listed a group as the group's coordinator."""
        self._known[group_id] = node_id

    def forget(self, *group_ids: str) -> None:
        """Forget coordinators that moved or cannot be reached."""
        for group_id in group_ids:
            self._known.pop(group_id, None)

    async def _ask(self, group_ids: Sequence[str]) -> dict[str, int]:
        """Ask any broker for coordinators. Other tasks may drop them from the cache meanwhile."""
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
            if answer.key in group_ids:  # ignore groups that were not asked about
                found[answer.key] = self._take(answer.key, answer)
        missing = [group_id for group_id in group_ids if group_id not in found]
        if missing:
            raise NotKafka(f"expected the coordinators of {missing}, found no word about them")
        return found

    def _take(self, group_id: str, answer: Coordinator | FindCoordinatorResponse) -> int:
        """Cache one answer, and the broker's address, which metadata may lack."""
        what = f"coordinator of {self._key_type.name.lower()} {group_id!r}"
        check(answer.error_code, what, answer.error_message)
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
    """Return the request version to use with the coordinator of a key, even if it moves."""

    async def version(node_id: int) -> int:
        return await core.version_on(node_id, api_key, at_most)

    return await _at_coordinator(core, coordinators, key, version, timeout_ms)


async def ask_coordinator(
    core: Core,
    coordinators: Coordinators,
    key: str,
    request: object,
    expected: type[R],
    refusal: Callable[[R], KafkaError | None],
    *,
    at_most: int | None = None,
    at_least: int = 0,
    timeout_ms: float | None = None,
) -> R:
    """Ask the coordinator of a key, even if it moves; return the answer or raise a final error.

    `refusal` returns the error in an answer; an error that is not retriable is raised. The request
    must be safe to repeat, because after a lost answer it is unknown whether it was carried out.
    """

    async def ask(node_id: int) -> R:
        response = await core.ask(node_id, request, expected, at_most=at_most, at_least=at_least)
        error = refusal(response)
        if error is not None:
            raise error
        return response

    return await _at_coordinator(core, coordinators, key, ask, timeout_ms)


async def _at_coordinator(
    core: Core,
    coordinators: Coordinators,
    key: str,
    ask: Callable[[int], Awaitable[T]],
    timeout_ms: float | None,
) -> T:
    """Ask the coordinator of a key; retry at another broker if it has moved."""

    async def attempt() -> T:
        node_id = (await coordinators.find([key]))[key]
        try:
            return await ask(node_id)
        except (ClientError, KafkaError) as error:
            if has_coordinator_moved(error):
                coordinators.forget(key)
            raise

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
    """Ask each coordinator about its groups; retry the groups whose coordinator was not ready.

    `request` returns the request for some groups and a version, which `at_most` bounds. Each group
    succeeds or fails on its own. After a lost answer the outcome is unknown, and the request is
    sent again only if `repeat_lost`: then it must be safe to repeat.
    """
    api_key = layout_of(expected).api_key
    assert api_key is not None, f"{expected.__name__} is not a response"
    answered = _Answered[T](coordinators, set(group_ids))

    def may_repeat(error: Exception) -> bool:
        if isinstance(error, KafkaError):
            return error.code in COORDINATOR_BUSY
        return is_retriable(error) if repeat_lost else isinstance(error, NotConnected)

    async def ask(node_id: int, of_node: list[str]) -> R:
        version = await core.version_on(node_id, api_key, at_most)
        return await core.ask(node_id, request(of_node, version), expected, at_most=version)

    async def attempt() -> None:
        failures: list[Exception] = []
        for node_id, of_node in _by_node(await coordinators.find(sorted(answered.left))).items():
            try:
                node_answers = answers(await ask(node_id, of_node))
                failures += answered.take(answers_to(of_node, node_answers, named("group")))
            except ClientError as error:
                coordinators.forget(*of_node)
                failures.append(error)
        failure = worst(failures, may_repeat)
        if failure is not None:
            raise failure

    await core.repeat(attempt, retriable=may_repeat)
    return answered.results


@dataclass(slots=True)
class _Answered(Generic[T]):
    """The final answers of groups."""

    coordinators: Coordinators
    left: set[str]
    results: dict[str, T | KafkaError] = field(default_factory=dict)

    def take(self, answers: Mapping[str, T | KafkaError]) -> list[KafkaError]:
        """Keep final answers; return the errors to retry after."""
        refusals = []
        for group_id, answer in answers.items():
            if isinstance(answer, KafkaError) and answer.code in COORDINATOR_BUSY:
                refusals.append(answer)
                if has_coordinator_moved(answer):
                    self.coordinators.forget(group_id)
            else:
                self.results[group_id] = answer
                self.left.discard(group_id)
        return refusals


def _by_node(found: dict[str, int]) -> dict[int, list[str]]:
    """Group the group ids by their coordinator's broker id."""
    grouped: dict[int, list[str]] = {}
    for group_id, node_id in found.items():
        grouped.setdefault(node_id, []).append(group_id)
    return grouped
