"""A client that sends coordinators well-formed requests with extreme values."""

from __future__ import annotations

from random import Random
from typing import Any

from raylog.simulation.asking import UNANSWERED, Asking
from raylog.simulation.cluster import Cluster
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.registry import request_class
from raylog.wire.schema import BOOL, STRING, UUID, Array, Field, Kind, is_struct, layout_of

APIS = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.LIST_GROUPS,
)
LONGEST = "x" * 32_767
TEXTS = ("", "stranger", LONGEST, "\u0439" * 16_383, "a\n\x1b[2J\x00", "^(a+)+$", "(")
GROUPS = ("", "stranger", "of nobody\n", LONGEST)
"""Groups that no other client uses."""
SANE: dict[str, Any] = {
    "session_timeout_ms": 1_000,
    "rebalance_timeout_ms": 1_000,
    "member_id": "",
    "member_epoch": 0,
    "partition_index": 0,
    "generation_id_or_member_epoch": -1,
    "subscribed_topic_regex": None,
    "committed_metadata": "",
    "topic_partitions": [],
}
SANE_PART = 0.6
"""Probability that such a field is sane. Otherwise the server does not get to the others."""
SIZES = (0, 1, 1, 1, 3)
"""The sizes of arrays."""
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


class Stranger:
    """Sends random requests, whatever the answers are."""

    def __init__(self, cluster: Cluster, number: int, topic: str) -> None:
        self.asking = Asking(cluster, number)
        self.stopping = False
        self.stopped = False
        self._topic = topic
        self._number = number

    @property
    def label(self) -> str:
        """The name in messages."""
        return f"stranger {self._number}"

    async def run(self, pause_s: float) -> None:
        """Send requests until told to stop."""
        random = self.asking.random
        while not self.stopping:
            api_key = random.choice(APIS)
            version = random.choice(api_key.versions)
            request = self._struct(request_class(api_key), version)
            try:
                await self._ask(request, version)
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            await self.asking.pause(pause_s)
        self.stopped = True

    async def _ask(self, request: Any, version: int) -> None:
        """Send to the group's coordinator mostly, if the request has a group."""
        group_id = getattr(request, "group_id", "")
        random = self.asking.random
        if group_id and random.random() < 0.8:
            finding = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
            [found] = (await self.asking.ask_any(finding, 4)).coordinators
            if not found.error_code:
                await self.asking.ask(found.node_id, request, version)
        else:
            await self.asking.ask_any(request, version)

    def _struct(self, cls: type, version: int) -> Any:
        values = {
            field.name: self._value(field, version)
            for field in layout_of(cls).fields
            if version in field.versions
        }
        return cls(**values)

    def _value(self, field: Field, version: int) -> Any:
        random = self.asking.random
        if version in field.nullable and random.random() < 0.3:
            return None
        if field.name in ("group_id", "groups_names", "group_ids") or (
            field.name == "groups" and field.kind == Array(STRING)
        ):
            one = random.choice(GROUPS)
            return one if field.kind is STRING else [one]
        if field.name in SANE and random.random() < SANE_PART:
            return SANE[field.name]
        if field.name == "name" and field.kind is STRING and random.random() < SANE_PART:
            return self._topic
        return self._of_kind(field.kind, version)

    def _of_kind(self, kind: Kind | Array | type, version: int) -> Any:
        random = self.asking.random
        if isinstance(kind, Array):
            return [self._of_kind(kind.element, version) for _ in range(random.choice(SIZES))]
        if is_struct(kind):
            assert isinstance(kind, type)
            return self._struct(kind, version)
        assert isinstance(kind, Kind)
        return _scalar(random, kind)


def _scalar(random: Random, kind: Kind) -> Any:
    if kind is STRING:
        return random.choice(TEXTS)
    if kind is BOOL:
        return random.random() < 0.5
    if kind is UUID:
        return random.choice((bytes(16), b"\xff" * 16))
    if kind.code in _BITS:
        end = 1 << (_BITS[kind.code] - 1)
        return random.choice((-end, -2, -1, 0, 1, 10_000 % end, end - 1))
    return random.choice((b"", b"\x00", b"\xff" * 100, bytes(40_000)))
