"""The command `raylog dlq replay`: writes dead letters back to their topics, once each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from raylog.cli.output import counted, print_done
from raylog.cli.progress import Progress

if TYPE_CHECKING:
    from raylog.cli.dlq_letters import Letter
    from raylog.client import (
        BlockingClient,
        BlockingProducer,
        CommittedOffset,
        GroupMetadata,
        ProducerRecord,
        TopicPartition,
    )
    from raylog.client.parallel.progress import Progress as Replayed

_RECORDS_MAX = 500
"""Maximum number of records in one transaction."""
_BYTES_MAX = 4 * 1024 * 1024
_NO_ORIGIN = "without an original topic (give --to TOPIC)"
_NO_VALUE = "without their value, which was too large (read it from the original topic)"
_FILTERED = "that were not selected"

Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="A dead-letter topic.", autocompletion=complete_topics),
]
PartitionFilter = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="Partition of the dead-letter topic; repeatable."),
]
ReasonFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--reason",
        help="Only letters with this reason (raised, stalled, worker lost, undelivered) or "
        "exception class; repeatable.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="TOPIC",
        help="Write to this topic, partitioned by key. Default: the original topic and partition "
        "of each letter.",
        autocompletion=complete_topics,
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Replay at most this many letters.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be replayed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def is_selected(letter: Letter, reasons: list[str] | None) -> bool:
    """Whether a letter has one of the reasons or exception classes, if any are given."""
    return not reasons or letter.headers.reason in reasons or letter.headers.exception in reasons


def replay(
    topic: Topic,
    to: To = None,
    partitions: PartitionFilter = None,
    reasons: ReasonFilter = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> dict[str, object]:
    """Write dead letters back to their topics, each once, in order per partition.

    The key, value and headers are those of the record that failed; the
    timestamp is new. The transaction that writes the letters also commits their
    offsets for the group raylog-dlq-replay-TOPIC: run the command again to
    continue with the rest. These offsets expire like those of any group without
    members.
    """
    from raylog.cli.dlq_letters import partitions_of

    if to == topic:
        raise typer.BadParameter("cannot write letters to the topic that they are read from")
    wanted = _Wanted(topic, to, reasons, limit)
    with Progress() as progress, connect(bootstrap) as client:
        if to is not None:
            client.describe_topic(to)
        keys = partitions_of(client, topic, partitions)
        if dry_run or (not yes and sys.stdin.isatty()):
            progress.tell(f"reading {topic}")
            done = _look(client, keys, wanted)
    if dry_run:
        _tell("would be replayed", done)
        return done.facts(topic)
    if not yes and sys.stdin.isatty():
        if not done.count:
            _tell("replayed", done)
            return done.facts(topic)
        typer.confirm(f"Replay {counted(done.count, 'letter')} to {done.targets}?", abort=True)
    with Progress() as progress, connect(bootstrap) as client:
        done = _replay(client, keys, wanted, progress)
    _tell("replayed", done)
    return done.facts(topic)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which letters to replay, and where to."""

    topic: str
    to: str | None
    reasons: list[str] | None
    limit: int | None


@dataclass(slots=True)
class _Done:
    """How many letters were replayed, by topic, and how many were left, by reason."""

    to: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    already: int = 0

    @property
    def count(self) -> int:
        return self.to.total()

    @property
    def targets(self) -> str:
        return ", ".join(f"{name} ({count:,})" for name, count in sorted(self.to.items()))

    def facts(self, topic: str) -> dict[str, object]:
        """Return the counts as a JSON object."""
        return {
            "topic": topic,
            "letters": self.count,
            "to": dict(self.to),
            "left": self.left.total(),
            "replayed_before": self.already,
        }


@dataclass(slots=True)
class _Batch:
    """Letters of one partition for one transaction."""

    key: TopicPartition
    records: list[ProducerRecord] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) >= _RECORDS_MAX or self.size >= _BYTES_MAX


def _tell(what: str, done: _Done) -> None:
    """Print how many letters were replayed, and how many were not."""
    targets = f": {done.targets}" if done.count else ""
    print_done(f"{counted(done.count, 'letter')} {what}{targets}")
    for why, count in done.left.items():
        print_done(f"{counted(count, 'letter')} left {why}")
    if done.already:
        print_done(f"{counted(done.already, 'letter')} already replayed")


def _look(client: BlockingClient, keys: list[TopicPartition], wanted: _Wanted) -> _Done:
    """Count the letters that would be replayed."""
    from raylog.cli.dlq_letters import progresses

    done = _Done()
    for _ in _batches(client, keys, progresses(client, keys), wanted, done):
        pass
    return done


def _replay(
    client: BlockingClient, keys: list[TopicPartition], wanted: _Wanted, progress: Progress
) -> _Done:
    """Replay the letters, one transaction per batch."""
    from raylog.cli.dlq_letters import progresses, replay_group
    from raylog.client import CommittedOffset, GroupMetadata, ProducerSettings

    group = replay_group(wanted.topic)
    done = _Done()
    producer = client.producer(ProducerSettings(transactional_id=group))
    try:
        producer.init_transactions()  # ends an open transaction of another replay of this topic
        replayed = progresses(client, keys, require_stable=True)
        for batch in _batches(client, keys, replayed, wanted, done):
            point = replayed[batch.key].commit_point()
            assert point is not None, "no letter is taken whose note would not fit"
            offset = CommittedOffset(point[0], metadata=point[1])
            _write(producer, batch, offset, GroupMetadata(group))
            progress.tell(f"replayed {counted(done.count, 'letter')}")
    finally:
        producer.close()
    return done


def _write(
    producer: BlockingProducer[bytes, bytes],
    batch: _Batch,
    offset: CommittedOffset,
    group: GroupMetadata,
) -> None:
    """Write a batch and commit its offset in one transaction. Raises CommandFailed if it aborts."""
    from raylog.client import AbortRequired

    producer.begin_transaction()
    try:
        for one in batch.records:
            key, value = one.key, one.value
            assert key is None or isinstance(key, bytes), "as it was read"
            assert value is None or isinstance(value, bytes), "as it was read"
            producer.send(one.topic, value, key, list(one.headers), None, one.partition)
        producer.send_offsets_to_transaction({batch.key: offset}, group)
        producer.commit_transaction()
    except AbortRequired as error:
        producer.abort_transaction()
        raise CommandFailed(
            f"letters of {batch.key} were not replayed: {error.__cause__ or error}",
            "Letters that were already replayed stay replayed: run the command again",
        ) from error


def _batches(
    client: BlockingClient,
    keys: list[TopicPartition],
    replayed: dict[TopicPartition, Replayed],
    wanted: _Wanted,
    done: _Done,
) -> Iterator[_Batch]:
    """Yield the letters to replay. `replayed` already counts those of a yielded batch as done."""
    from raylog.cli.dlq_letters import read_letters
    from raylog.client.parallel.letters import as_sent_again, size_of

    batch: _Batch | None = None
    for letter in read_letters(client, keys, replayed):
        if batch is not None and (batch.is_full or batch.key != letter.key):
            yield batch
            batch = None
        if wanted.limit is not None and done.count >= wanted.limit:
            break
        if not _takes(replayed[letter.key], letter, wanted, done):
            continue
        sent = as_sent_again(letter.key, letter.record, letter.headers, wanted.to)
        if sent.topic not in done.to:
            _require_topic(client, sent.topic)
        batch = batch or _Batch(letter.key)
        batch.records.append(sent)
        batch.size += size_of(sent)
        done.to[sent.topic] += 1
    if batch is not None:
        yield batch


def _require_topic(client: BlockingClient, topic: str) -> None:
    """Raise CommandFailed if a topic does not exist, because a producer might create it."""
    from raylog.wire.errors import UnknownTopicOrPartition

    try:
        client.describe_topic(topic)
    except UnknownTopicOrPartition as error:
        raise CommandFailed(
            f"the original topic of the letters, {topic}, does not exist",
            "Replay them to another topic with: --to TOPIC",
        ) from error


def _takes(progress: Replayed, letter: Letter, wanted: _Wanted, done: _Done) -> bool:
    """Count a letter; return whether to replay it.

    Raises CommandFailed if the note in the commit metadata would become too long.
    """
    entry = progress.take(letter.record, 0, 0.0)
    if entry is None:
        done.already += 1
        return False
    reason = _why_left(letter, wanted)
    if reason is not None:
        done.left[reason] += 1
        return False
    if not progress.may_start(entry):
        raise CommandFailed(
            "the metadata of a committed offset cannot list so many gaps between replayed "
            f"letters of {letter.key}",
            "Replay the others first, without --reason",
        )
    progress.start(entry)
    progress.finish(entry)
    return True


def _why_left(letter: Letter, wanted: _Wanted) -> str | None:
    """Return why a letter is not replayed; None if it is."""
    if not is_selected(letter, wanted.reasons):
        return _FILTERED
    if letter.headers.value_left_out is not None:
        return _NO_VALUE
    if letter.headers.origin is None and wanted.to is None:
        return _NO_ORIGIN
    return None
