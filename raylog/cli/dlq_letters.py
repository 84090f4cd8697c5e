"""Reads dead letters for the commands: all of a topic, up to its end when the reading starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from raylog.cli.failures import CommandFailed

if TYPE_CHECKING:
    from raylog.client import BlockingClient, CommittedOffset, TopicPartition
    from raylog.client.parallel.letters import LetterHeaders
    from raylog.client.parallel.progress import Progress
    from raylog.wire.record import Record

_POLL_MS = 500
_POLL_RECORDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of a dead-letter topic."""

    key: TopicPartition
    record: Record
    headers: LetterHeaders
    is_replayed: bool


def replay_group(topic: str) -> str:
    """Return the group whose committed offsets record which letters of a topic were replayed."""
    return f"raylog-dlq-replay-{topic}"


def partitions_of(
    client: BlockingClient, topic: str, wanted: Iterable[int] | None
) -> list[TopicPartition]:
    """Return the wanted partitions (None: all). Raises BadParameter if one does not exist."""
    from raylog.client import TopicPartition

    view = client.describe_topic(topic)
    unknown = sorted(set(wanted or ()) - set(view.partitions))
    if unknown:
        raise typer.BadParameter(
            f"{topic} has the partitions 0 to {len(view.partitions) - 1}, found {unknown[0]}",
            param_hint="--partition",
        )
    return [TopicPartition(topic, index) for index in sorted(set(wanted or view.partitions))]


def progresses(
    client: BlockingClient, keys: list[TopicPartition], *, require_stable: bool = False
) -> dict[TopicPartition, Progress]:
    """Return how far the letters of partitions were replayed.

    Raises CommandFailed if the topic was created again, or if a committed note is unreadable.
    """
    from raylog.client import LATEST
    from raylog.client.parallel.note import NoteUnreadable, decode_note
    from raylog.client.parallel.progress import Progress

    group = replay_group(keys[0].topic)
    committed = client.group_offsets(group, keys, require_stable=require_stable)
    ends = client.list_offsets(dict.fromkeys(keys, LATEST))
    made = {}
    for key in keys:
        found: CommittedOffset | None = committed.get(key)
        if found is None:
            made[key] = Progress(key, None)
            continue
        if found.offset > ends[key].offset:
            raise CommandFailed(
                f"{key} ends at {ends[key].offset}, but letters before {found.offset} were "
                "replayed: the topic was created again",
                f"Forget what was replayed with: raylog groups delete {group}",
            )
        try:
            finished = decode_note(key, found.offset, found.metadata)
        except NoteUnreadable as error:
            raise CommandFailed(
                f"cannot read which letters of {key} were replayed: {error}",
                f"Start over with: raylog groups reset-offsets {group} --topic {key.topic}",
            ) from error
        made[key] = Progress(key, found.offset, finished)
    return made


def read_letters(
    client: BlockingClient,
    keys: list[TopicPartition],
    replayed: dict[TopicPartition, Progress],
    tell: Callable[[int], None] = lambda count: None,
) -> Iterator[Letter]:
    """Yield all committed letters, one partition after the other, each in order."""
    from raylog.client import EARLIEST, LATEST, ConsumerSettings
    from raylog.client.parallel.letters import read_letter

    ends = client.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
    count = 0
    for key in keys:
        progress = replayed[key]
        base = progress.base or 0
        consumer = client.consumer(ConsumerSettings(read_committed=True))
        try:
            consumer.assign({key: EARLIEST})
            while consumer.position(key) < ends[key].offset:
                for some in consumer.poll(_POLL_MS, _POLL_RECORDS_MAX):
                    count += len(some.records)
                    tell(count)
                    for record in some.records:
                        is_replayed = record.offset < base or progress.was_noted(record.offset)
                        yield Letter(key, record, read_letter(record), is_replayed)
        finally:
            consumer.close()
