"""What an interceptor is: a plug-in that sees a topic's records on their way through the broker.

A topic asks for interceptors by name, in the order in which they are called, and gives them
options:

    raylog.interceptors=json-schema,mask
    raylog.interceptor.mask.fields=card,iban

`on_produce` sees each batch before it is stored, `on_fetch` each batch before a client gets it.
A package registers its own:

    [project.entry-points."raylog.interceptors"]
    mask = "my_package.mask:Mask"

Records of transactions are seen like others, before it is known how their transaction ends;
control records, which brokers write, are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

ENTRY_POINT_GROUP = "raylog.interceptors"


class Record(NamedTuple):
    """One record. `_replace` makes a changed one; the offset must stay."""

    offset: int
    """On produce the position in the batch, from 0, since the log's offset is not known yet."""
    timestamp: int
    """In ms since the epoch; -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Rejected(NamedTuple):
    """Returned in the place of a record: the producer is told why, and its whole batch fails."""

    offset: int
    """Of the record that is refused."""
    reason: str


class Interceptor(Protocol):
    """An interceptor. Inherit from it: what is not overridden then lets everything pass.

    There is one instance for each topic and gateway process. It is called from threads: in turn
    for one partition, perhaps at the same time for several. What it raises fails the request at
    hand, and a call that takes longer than `raylog.interceptors.timeout.ms` fails it too.
    """

    name: ClassVar[str]
    """The entry point's name, which is what topics ask for."""

    def configure(self, options: Mapping[str, str]) -> None:
        """Take the topic's options, once before any records come.

        Called without records too, to see whether settings that a client wants are right: any
        exception refuses them, with its text.
        """
        del options

    def on_produce(self, topic: str, records: Sequence[Record]) -> Iterable[Record | Rejected]:
        """What to store of a batch: records as they came, changed, or left out.

        Offsets must be among those of `records`, in their order. A record that is left out leaves
        a gap in the log's offsets, as compaction does; its producer is told that all went well.
        """
        del topic
        return records

    def on_fetch(self, topic: str, records: Sequence[Record]) -> Iterable[Record]:
        """What a client gets to read of a stored batch; the log itself stays as it is."""
        del topic
        return records


@dataclass(frozen=True, slots=True)
class Wanted:
    """The interceptors that a topic's settings ask for."""

    topic: str
    names: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    """(NAME.OPTION, value), sorted."""
