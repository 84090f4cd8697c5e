"""The client interceptor interface (KIP-42): it sees records when they are sent and read.

A client accepts interceptors as objects or by name. A package registers a name for a class whose
constructor needs no arguments:

    [project.entry-points."raylog.client.interceptors"]
    audit = "my_package.audit:AuditInterceptor"

`load` finds these; `raylog.client.interception.Chain` runs them.

Interceptors run in the order given, each on the result of the one before it. If one raises, the
exception is logged and the record continues unchanged, as in Kafka's clients: an interceptor never
loses a record.
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
    """A record as passed to `send`, before serializers and the partitioner."""

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
    """-1 if unknown: acks=0, or a retry of a batch that the broker no longer remembers."""
    timestamp_ms: int
    """The record's own timestamp, or the broker's if the topic uses LogAppendTime."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=object)
    V = TypeVar("V", default=object)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record as returned by `poll`: key and value are deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: Sequence[tuple[str, bytes | None]]


class ClientInterceptor:
    """Base class of interceptors; a method that is not overridden changes nothing."""

    def configure(self, settings: Mapping[str, object]) -> None:
        """Receive the client's settings, under Kafka's names; raise ValueError to refuse them."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send. Called before serialization, in the thread that sends."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """See a record's result; the offset is -1 if it failed. Called in the sender's thread."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Return the records that `poll` will return."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """See offsets that were committed."""

    def close(self) -> None:
        """Release resources; called when the client closes."""


def load(names: str | Iterable[str]) -> list[ClientInterceptor]:
    """Return new instances of the interceptors registered under `names`, in their order.

    A string may hold several names, separated by commas. Raises InvalidSetting with the reason.
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
    """Describe all registered interceptors, by name; loads each to see whether that works."""
    return _plugins().available()


def _plugins() -> Plugins:
    """Return the plugin mechanism; imported late to save the time if no interceptor is named."""
    from raylog.assignors.plugins import Plugins

    return Plugins(
        ENTRY_POINT_GROUP,
        "client interceptor",
        "raylog.client.interceptors.ClientInterceptor",
        ("configure", "on_send", "on_acknowledgement", "on_consume", "on_commit", "close"),
        named=False,
    )
