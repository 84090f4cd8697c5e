"""Simulated clients that speak the Kafka protocol with any broker, leaders or coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any, NamedTuple

from raylog.actors.common_messages import TopicId
from raylog.actors.endpoints import DEFAULT_LISTENER
from raylog.actors.runtime.base import ActorGone, Buffer, Link, PeerLost, PeerTimeout
from raylog.simulation.cluster import Cluster
from raylog.simulation.network import CLIENT
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.sockets import CLIENT_REQUEST
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.schema import layout_of

ANSWER_S = 2.5
GROUP_KEY = 0
_LENGTH_BYTES = 4
_FIND_VERSION, _METADATA_VERSION = 4, 12
UNANSWERED = (PeerLost, PeerTimeout, ActorGone)


class KnownTopic(NamedTuple):
    """A topic as a broker describes it."""

    topic_id: TopicId
    leaders: dict[int, int]
    """Leader by partition; -1 if it has none."""

    @property
    def partitions(self) -> list[int]:
        """All partitions, with and without a leader."""
        return sorted(self.leaders)


class Asking:
    """One client's connections."""

    def __init__(self, cluster: Cluster, number: int, listener: str = DEFAULT_LISTENER) -> None:
        self.runtime = SimRuntime(cluster.world, machine=f"{CLIENT}-{number}")
        self.random = Random(f"{cluster.world.random.random()} {number}")  # noqa: S311 - must repeat
        self.cluster = cluster
        self._name = f"{CLIENT}-{number}"
        self._listener = listener
        self._links: dict[int, tuple[str, Link]] = {}
        """Broker id to the process that is linked, and the link."""
        self._coordinators: dict[tuple[int, str], int] = {}
        self._correlation_id = 0

    # ---- one broker ----------------------------------------------------------------------

    async def ask(self, broker_id: int, request: object, version: int) -> Any:
        """A broker's response, with or without errors. Raises PeerLost or PeerTimeout."""
        link = await self._link(broker_id)
        api_key = layout_of(type(request)).api_key
        assert api_key is not None, "requests have one"
        self._correlation_id += 1
        frame = encode_request(api_key, version, self._correlation_id, self._name, request)
        answered = _sent(link, self._name, self._listener, frame)
        try:
            async with asyncio.timeout(ANSWER_S):
                payload = await answered
        except TimeoutError:
            self._hang_up(broker_id)
            raise PeerTimeout(f"broker {broker_id} does not answer") from None
        except KafkaError as closed:
            self._hang_up(broker_id)
            raise PeerLost(str(closed)) from closed
        return decode_response(api_key, version, payload[_LENGTH_BYTES:])[1]

    async def _link(self, broker_id: int) -> Link:
        gateway = self.cluster.gateway_of(broker_id)
        if gateway is None:
            raise PeerLost(f"nobody listens at broker {broker_id}")
        instance, link = self._links.get(broker_id, ("", None))
        if link is None or instance != gateway.ref.instance or not link.is_open:
            try:
                async with asyncio.timeout(ANSWER_S):
                    link = await self.runtime.connect(gateway.ref)
            except TimeoutError:
                raise PeerTimeout(f"broker {broker_id} takes no connection") from None
            self._links[broker_id] = gateway.ref.instance, link
        return link

    def _hang_up(self, broker_id: int) -> None:
        """Close a connection after a timeout, so that its late answers are dropped."""
        _, link = self._links.pop(broker_id, ("", None))
        if link is not None:
            link.close()

    async def ask_any(self, request: object, version: int) -> Any:
        """The response of a random broker."""
        broker_id = self.random.randrange(len(self.cluster.machines))
        return await self.ask(broker_id, request, version)

    # ---- leaders and coordinators --------------------------------------------------------

    async def topic(self, name: str) -> KnownTopic:
        """The metadata of a topic from any broker. Raises its error, if there is one."""
        topics = [MetadataRequestTopic(name=name)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        [found] = (await self.ask_any(request, _METADATA_VERSION)).topics
        if found.error_code:
            raise error_of(ErrorCode(found.error_code), name)
        leaders = {one.partition_index: one.leader_id for one in found.partitions}
        return KnownTopic(TopicId(found.topic_id), leaders)

    async def ask_coordinator(
        self,
        key: str,
        request: object,
        version: int,
        *,
        key_type: int = GROUP_KEY,
        fine: Container[int] = (),
    ) -> Any:
        """The response of the coordinator of a group or transactional id.

        Raises the first error that is not in `fine`, and then looks the coordinator up again next
        time.
        """
        place = (key_type, key)
        broker_id = self._coordinators.pop(place, -1)
        if broker_id < 0:
            finding = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            [found] = (await self.ask_any(finding, _FIND_VERSION)).coordinators
            if found.error_code:
                raise error_of(ErrorCode(found.error_code), key)
            broker_id = found.node_id
        response = without_errors(await self.ask(broker_id, request, version), fine)
        self._coordinators[place] = broker_id
        return response

    async def pause(self, longest_s: float = 0.2) -> None:
        """Wait a little before the next attempt."""
        await self.runtime.sleep(self.random.uniform(0.02, longest_s))


def _sent(
    link: Link, client: str, listener: str, frame: list[Buffer]
) -> asyncio.Future[memoryview]:
    """Send a frame to a listener. The future holds the response frame."""
    answered: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

    def answer(_: object, payload: memoryview) -> None:
        if not answered.done():
            answered.set_result(payload)

    def fail(failure: Exception) -> None:
        if not answered.done():
            answered.set_exception(failure)

    link.request(CLIENT_REQUEST, (client, listener), frame, answer, fail)
    return answered


def without_errors(response: Any, fine: Container[int] = ()) -> Any:
    """Return the response, or raise its first error that is not in `fine`."""
    code = next((one for one in _error_codes(response) if one and one not in fine), 0)
    if code:
        raise error_of(ErrorCode(code), type(response).__name__)
    return response


def _error_codes(one: Any) -> Iterator[int]:
    """All error codes of a response, at any depth."""
    for part in fields(one):
        value = getattr(one, part.name)
        if part.name == "error_code":
            yield value
        elif isinstance(value, list):
            for item in value:
                if is_dataclass(item):
                    yield from _error_codes(item)
        elif is_dataclass(value):
            yield from _error_codes(value)
