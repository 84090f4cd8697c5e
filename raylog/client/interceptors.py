"""What a client interceptor is (KIP-42): it sees records when they are sent and when they are read.

A client takes interceptors as objects, or by name: a package registers a class that is made without
arguments.

    [project.entry-points."raylog.client.interceptors"]
    audit = "my_package.audit:AuditInterceptor"

`load` finds those; `raylog.client.interception.Chain` runs them.

Interceptors run in the order given, each on what the one before it returned. What one raises is
logged and the record goes on as it was, as in Kafka's clients: an interceptor never loses a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, cast

from raylog.client.errors import InvalidSetting

if TYPE_CHECKING:
    from raylog.assignors.plugins import PluginDescription, Plugins
    from raylog.client.admin.groups import CommittedOffset
    from raylog.client.cluster import TopicPartition

__all__ = [
    "ClientInterceptor",
    "ConsumerRecord",
    "ProducerRecord",
    "RecordMetadata",
    "available",
    "load",
]

ENTRY_POINT_GROUP = "raylog.client.interceptors"


class ProducerRecord(NamedTuple):
    """A record as the caller gave it: before serializers and the partitioner."""

    topic: str
    value: object
    key: object = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    """-1 if unknown: acks=0, or a repeat of a batch that the broker no longer remembers."""
    timestamp_ms: int
    """The record's own, or the broker's time where the topic says LogAppendTime."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=object)
    V = TypeVar("V", default=object)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record as it was read: key and value are what the deserializers returned."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: Sequence[tuple[str, bytes | None]]


class ClientInterceptor:
    """Inherit from it: what is not overridden lets everything pass."""

    def configure(self, settings: Mapping[str, object]) -> None:
        """Take the client's settings, by Kafka's names; raise ValueError to refuse them."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """See a record before it is serialized; called by the thread that sends."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """See a record's end; the offset is -1 if it failed. Called by the sender's thread."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """See records before `poll` returns them."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """See offsets that were committed."""

    def close(self) -> None:
        """Release what is held; called when the client closes."""


def load(names: str | Iterable[str]) -> list[ClientInterceptor]:
    """New instances of the interceptors registered under `names`, in their order.

    A string may hold several, separated by commas. Raises InvalidSetting, which says what failed.
    """
    from raylog.assignors.plugins import PluginError

    wanted = names.split(",") if isinstance(names, str) else list(names)
    plugins = _plugins()
    try:
        loaded = [plugins.load(name.strip()) for name in wanted if name.strip()]
    except PluginError as failure:
        raise InvalidSetting(str(failure)) from failure
    return [cast(ClientInterceptor, one) for one in loaded]


def available() -> list[PluginDescription]:
    """All that are registered, by name; every one is loaded to see whether it can be."""
    return _plugins().available()


def _plugins() -> Plugins:
    """The mechanism is imported late: whoever names no interceptor does not wait for it."""
    from raylog.assignors.plugins import Plugins

    return Plugins(
        ENTRY_POINT_GROUP,
        "client interceptor",
        "raylog.client.interceptors.ClientInterceptor",
        ("configure", "on_send", "on_acknowledgement", "on_consume", "on_commit", "close"),
        named=False,
    )
