"""What the conformance tests need from a client library, with one adapter per library."""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Protocol

from tests.conformance.scenarios import Message, Stored, TopicShape, WriteOptions

DEADLINE_S = 30.0


class ClientAdapter(Protocol):
    """One client library, synchronous; every call opens and closes its own connections.

    Consumers assign partitions with explicit offsets and use no group. Refusals by the broker
    are raised as RefusedError with Kafka's code.
    """

    name: str
    describing_creates: bool
    """Whether describing an unknown topic asks the broker to create it, as old metadata did."""

    def able_to_send(self, message: Message) -> bool:
        """False where the library itself refuses such a record before any broker sees it."""
        ...

    def write(
        self, bootstrap: str, topic: str, messages: Sequence[Message], how: WriteOptions
    ) -> list[Stored]:
        """Produce in order, flush, return what was acknowledged with the offsets given.

        With acks=0 nothing is acknowledged: some libraries then say offset -1, some nothing.
        """
        ...

    def read(
        self, bootstrap: str, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[Stored]:
        """Everything from `starts` up to `ends` (exclusive) of each partition."""
        ...

    def read_after_seek(self, bootstrap: str, topic: str, offset: int, end: int) -> list[Stored]:
        """Read one record of partition 0 from its beginning, seek to `offset`, read to `end`."""
        ...

    def beginning_and_end(
        self, bootstrap: str, topic: str, partitions: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """(log start offset, exclusive end) of each partition."""
        ...

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """First offset of partition 0 whose record is at or after the time; None: there is none."""
        ...

    def create_topic(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create with replication factor 1."""
        ...

    def list_topics(self, bootstrap: str) -> set[str]:
        """Names of all topics."""
        ...

    def describe_topic(self, bootstrap: str, topic: str) -> TopicShape:
        """Partitions with their leaders; RefusedError 3 if the topic is not there."""
        ...

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Delete; returns when the broker has accepted it."""
        ...

    def create_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """Raise the number of partitions to `total`."""
        ...

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        """The effective configuration of a topic, defaults included."""
        ...

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str) -> None:
        """Set one configuration of a topic."""
        ...

    def delete_records(self, bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
        """Move the log start of each partition up to the offset given."""
        ...


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Ask until true; each question is itself a round trip to a broker, which paces the loop."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"
