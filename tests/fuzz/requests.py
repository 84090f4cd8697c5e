"""Requests made from their schemas: sensible as a whole, extreme in a few places.

Which API and version comes next is dealt from a shuffled deck that holds every announced pair, so
none is left out; sometimes an API that usually follows the last one comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from raylog.wire.api import ApiKey, limit_of
from raylog.wire.codec import decode_counted
from raylog.wire.errors import TooManyElements
from raylog.wire.frame import LENGTH_BYTES, decode_request_header, encode_request
from raylog.wire.messages.registry import request_class
from raylog.wire.schema import Array, Field, Kind, layout_of
from tests.fuzz.field_values import FIELD_VALUES, Choice, Scene
from tests.fuzz.safety import tame
from tests.fuzz.values import ENDS, TEXTS, spoiled_array
from tests.fuzz.world import World

LARGE_BYTES = 64 * 1_024
"""From here on a request is large: it may take long, so that nothing waits behind it."""

WAIT_BY_RIGHT_MS = 20
"""A fetch that may wait longer is sent where nothing else waits behind it."""

SPOILED = (0, 0, 1, 1, 1, 1, 2, 2, 3, 6)
"""How many values of a request are made extreme, one of these at random."""

IDENTITIES = frozenset(
    {
        "group_id",
        "member_id",
        "transactional_id",
        "v3_and_below_transactional_id",
        "producer_id",
        "v3_and_below_producer_id",
        "name",
        "topic",
        "topic_id",
        "partition",
        "partition_index",
        "index",
    }
)
"""Fields that say what a request is about: if one is extreme, little else of it is looked at. So
half of the times that one is chosen, another field is."""

OFTEN: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 15,
    ApiKey.FETCH: 12,
    ApiKey.JOIN_GROUP: 12,
    ApiKey.SYNC_GROUP: 9,
    ApiKey.HEARTBEAT: 6,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 24,
    ApiKey.INIT_PRODUCER_ID: 9,
    ApiKey.ADD_PARTITIONS_TO_TXN: 9,
    ApiKey.ADD_OFFSETS_TO_TXN: 6,
    ApiKey.TXN_OFFSET_COMMIT: 9,
    ApiKey.END_TXN: 9,
}
"""How many cards of each version are in a campaign's deck; USUAL where nothing is said."""

USUAL = 3
SELDOM = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ADD_RAFT_VOTER,
    }
)
"""One card each: they write metadata, which takes a hundred times as long as most."""

FOLLOWERS: Mapping[ApiKey, tuple[ApiKey, ...]] = {
    ApiKey.JOIN_GROUP: (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SYNC_GROUP),
    ApiKey.SYNC_GROUP: (ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT),
    ApiKey.INIT_PRODUCER_ID: (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE),
    ApiKey.ADD_PARTITIONS_TO_TXN: (ApiKey.PRODUCE, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
    ApiKey.ADD_OFFSETS_TO_TXN: (ApiKey.TXN_OFFSET_COMMIT,),
    ApiKey.TXN_OFFSET_COMMIT: (ApiKey.END_TXN,),
    ApiKey.FETCH: (ApiKey.FETCH,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT),
    ApiKey.CREATE_TOPICS: (ApiKey.METADATA, ApiKey.CREATE_PARTITIONS),
}
SHORT = 1_000
"""Characters or bytes of a value that may stand in an array that is repeated."""

REPEATED_BYTES = 4 << 20
"""About the bytes that one array may have by repeating its elements."""

FOLLOWS = 0.3
"""How often one of the followers comes next."""

OPENING = (
    (ApiKey.CREATE_TOPICS, 7),
    *[(ApiKey.INIT_PRODUCER_ID, 4)] * 5,
    *[(ApiKey.JOIN_GROUP, 3)] * 4,
    *[(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)] * 3,
)

_NULL = 0.15
_CLIENT_IDS = ("fuzz", "fuzz", "fuzz", "fuzz", None, "")


@dataclass(frozen=True, slots=True)
class Made:
    """A request, and how it is to be sent."""

    api_key: ApiKey
    version: int
    request: Any
    frame: bytes
    is_spoiled: bool
    """Whether something in it is extreme: a refusal then tells nothing about what exists."""
    exceeds_limit: bool
    """Whether it has more bytes or elements than its API may have: its connection is closed."""

    @property
    def is_silent(self) -> bool:
        """Whether no answer comes (acks=0), or the connection is closed instead."""
        return self.api_key is ApiKey.PRODUCE and bool(self.request.acks == 0)

    @property
    def may_wait(self) -> bool:
        """Whether the broker may leave it unanswered for long."""
        if self.api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.ADD_RAFT_VOTER):
            return True
        return self.api_key is ApiKey.FETCH and bool(self.request.max_wait_ms > WAIT_BY_RIGHT_MS)

    @property
    def is_large(self) -> bool:
        """Whether it is sent where nothing waits behind it."""
        return self.exceeds_limit or len(self.frame) > LARGE_BYTES


def deck_of(
    served: Mapping[int, range], seed: int, *, once: bool = False
) -> list[tuple[ApiKey, int]]:
    """Every API and version that is announced, shuffled; as often as it is worth, or `once`."""
    deck = [
        (ApiKey(key), version)
        for key, versions in served.items()
        for version in versions
        for _ in range(1 if once else cards_of(ApiKey(key)))
    ]
    Random(seed).shuffle(deck)
    return deck


def cards_of(api_key: ApiKey) -> int:
    """How many cards of each version of an API there are."""
    return 1 if api_key in SELDOM else OFTEN.get(api_key, USUAL)


class Maker:
    """Makes the requests of one episode."""

    def __init__(
        self,
        rng: Random,
        world: World,
        served: Mapping[int, range],
        cards: list[tuple[ApiKey, int]],
        huge: int,
    ) -> None:
        self._rng = rng
        self._world = world
        self._served = served
        self._cards = cards[::-1]
        self._huge = huge
        self._scene = Scene(rng, world)
        self._slots: list[tuple[Any, Field]] = []
        self._has_huge = False
        """Whether the request at hand may have a huge array already."""
        self._followed: ApiKey | None = None
        self._made = 0

    def next(self) -> Made | None:
        """The next request; None when all cards are played."""
        if not self._cards:
            return None
        followers = FOLLOWERS.get(self._followed, ()) if self._followed is not None else ()
        if followers and self._rng.random() < FOLLOWS:
            api_key = self._rng.choice(followers)
            version = self._rng.choice(self._served[api_key])
        else:
            api_key, version = self._cards.pop()
        self._followed = api_key
        return self.make(api_key, version)

    def opening(self) -> list[Made]:
        """Requests that make members, producers and topics; nothing in them is extreme."""
        return [
            self.make(api_key, version, spoiled=0)
            for api_key, version in OPENING
            if version in self._served.get(api_key, ())
        ]

    def make(self, api_key: ApiKey, version: int, *, spoiled: int | None = None) -> Made:
        """A request of this API and version; `spoiled` of its values are extreme, or any number."""
        rng = self._rng
        cls = request_class(api_key)
        self._scene.begin(cls.__name__)
        self._slots.clear()
        self._has_huge = False
        request = self._struct(cls, version)
        if spoiled is None:
            spoiled = rng.choice(SPOILED)
        for _ in range(spoiled):
            if self._slots:
                owner, field = rng.choice(self._slots)
                if field.name in IDENTITIES and rng.random() < 0.5:
                    owner, field = rng.choice(self._slots)
                self._spoil(version, owner, field)
        tame(api_key, request, version, self._world.cluster)
        client_id = rng.choice(_CLIENT_IDS) if rng.random() < 0.97 else rng.choice(TEXTS)
        self._made += 1
        frame = b"".join(encode_request(api_key, version, self._made, client_id, request))
        exceeds = _exceeds_limit(api_key, version, frame)
        return Made(api_key, version, request, frame, spoiled > 0, exceeds)

    def _struct(self, cls: type, version: int) -> Any:
        plan = _plan(cls, version)
        if plan.is_topic:
            self._scene.next_topic()
        made = cls()
        for field, choice in plan.fields:
            value = self._value(field, version) if choice is None else choice(self._scene)
            if value is None and version not in field.nullable and isinstance(field.kind, Kind):
                value = field.kind.default
            setattr(made, field.name, value)
            self._slots.append((made, field))
        return made

    def _value(self, field: Field, version: int) -> Any:
        kind = field.kind
        if isinstance(kind, Kind):
            return field.default
        if not isinstance(kind, Array):
            return self._struct(kind, version)
        if isinstance(kind.element, Kind):
            return []
        count = self._rng.choice((1, 1, 1, 2, 3))
        return [self._struct(kind.element, version) for _ in range(count)]

    def _spoil(self, version: int, owner: Any, field: Field) -> None:
        rng, kind = self._rng, field.kind
        if version in field.nullable and rng.random() < _NULL:
            setattr(owner, field.name, None)
        elif isinstance(kind, Array):
            element = kind.element.name if isinstance(kind.element, Kind) else None
            values = getattr(owner, field.name) or []
            setattr(owner, field.name, spoiled_array(rng, values, element, self._most(values)))
        elif not isinstance(kind, Kind):
            setattr(owner, field.name, kind())
        else:
            value = rng.choice(ENDS[kind.name])
            if kind.name == "records" and rng.random() < 0.8:
                value = self._scene.records(spoil=True)
            is_long = isinstance(value, str | bytes) and len(value) > SHORT
            setattr(owner, field.name, field.default if is_long and self._has_huge else value)

    def _most(self, values: list[Any]) -> int:
        """Elements that an array may get: one array of a request may be huge, or they multiply."""
        if self._has_huge:
            return 2
        self._has_huge = True
        each = max((len(repr(value)) for value in values), default=1)
        return max(2, min(self._huge, REPEATED_BYTES // each))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The fields of a struct in a version, each with what chooses a sensible value."""

    fields: tuple[tuple[Field, Choice | None], ...]
    is_topic: bool


_TOPIC_FIELDS = {"topic", "topic_id", "topic_name", "partitions", "partition_indexes"}


@cache
def _plan(cls: type, version: int) -> _Plan:
    fields = [field for field in layout_of(cls).fields if version in field.versions]
    chosen = [(field, _choice(cls, field)) for field in fields]
    names = {field.name for field in fields}
    return _Plan(tuple(chosen), bool(names & _TOPIC_FIELDS))


def _choice(cls: type, field: Field) -> Choice | None:
    """What chooses a sensible value; None for structs that are made field by field."""
    own = FIELD_VALUES.get(f"{cls.__name__}.{field.name}")
    element = field.kind.element if isinstance(field.kind, Array) else field.kind
    return own or (FIELD_VALUES.get(field.name) if isinstance(element, Kind) else None)


def _exceeds_limit(api_key: ApiKey, version: int, frame: bytes) -> bool:
    limit = limit_of(api_key)
    size = len(frame) - LENGTH_BYTES
    if size > limit.bytes_max:
        return True
    if size <= limit.elements_max:
        return False  # an element has at least one byte
    body = memoryview(frame)[LENGTH_BYTES:]
    _, position = decode_request_header(body)
    try:
        decode_counted(request_class(api_key), version, body, position, limit.elements_max)
    except TooManyElements:
        return True
    return False
