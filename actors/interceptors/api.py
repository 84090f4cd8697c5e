"""The interface of interceptors: plug-ins that process a topic's records on the broker.

A topic lists its interceptors by name, in the order in which they are called, and sets their
options:

    raylog.interceptors=json-schema,mask
    raylog.interceptor.mask.fields=card,iban

`on_produce` sees each batch before it is stored, `on_fetch` each batch before it is sent to a
consumer. A package registers an interceptor as an entry point:

    [project.entry-points."raylog.interceptors"]
    mask = "my_package.mask:Mask"

Transactional records are processed like others, before their transaction is committed or aborted.
Control records, which brokers write, are never passed to interceptors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

ENTRY_POINT_GROUP = "raylog.interceptors"


class Record(NamedTuple):
    """A record. Use `_replace` to change one; the offset must stay the same."""

    offset: int
    """On produce the position in the batch, from 0, since the offset is not assigned yet."""
    timestamp: int
    """In ms since the epoch, or -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Rejected(NamedTuple):
    """Returned in place of a record to reject it: its whole batch fails with the reason."""

    offset: int
    """The offset of the rejected record."""
    reason: str


class Interceptor(Protocol):
    """An interceptor. Inherit from it: methods that are not overridden let all records pass.

    There is one instance per topic and gateway process. It is called from threads: one call at a
    time per partition, but possibly several at once for different partitions. If it raises an
    exception, or takes longer than `raylog.interceptors.timeout.ms`, the request fails.
    """

    name: ClassVar[str]
    """The name of the entry point, by which topics list it."""

    def configure(self, options: Mapping[str, str]) -> None:
        """Set the topic's options; called once before any records.

        Also called without records to validate settings that a client wants to set: any exception
        rejects them, with its text.
        """
        del options

    def on_produce(self, topic: str, records: Sequence[Record]) -> Iterable[Record | Rejected]:
        """Return the records to store: as they came, changed, or some of them left out.

        Offsets must be among those of `records`, in the same order. A record that is left out
        leaves a gap in the offsets of the log, as compaction does; its producer gets no error.
        """
        return records

    def on_fetch(self, topic: str, records: Sequence[Record]) -> Iterable[Record]:
        """Return the records to send to a consumer; the log does not change."""
        return records


@dataclass(frozen=True, slots=True)
class Wanted:
    """The interceptors that a topic is configured with."""

    topic: str
    names: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    """(NAME.OPTION, value), sorted."""
