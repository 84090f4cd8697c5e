"""Parses brokers and partitions on the command line, and prints outcomes for partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.failures import EXIT_USAGE, CommandFailed
from raylog.cli.output import print_json, print_table

if TYPE_CHECKING:
    from raylog.client import PartitionReplicas, TopicPartition
    from raylog.wire.errors import KafkaError


TopicsOrPartitions = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="Topic, or some of its partitions; repeatable.",
        autocompletion=complete_topics,
    ),
]


def parse_brokers(text: str, option: str) -> list[int]:
    """Parse broker ids such as 0,1,2; raises CommandFailed."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise CommandFailed(
            f"{option}: expected broker ids 0,1,2, found {text!r}", None, EXIT_USAGE
        )
    brokers = [int(part) for part in parts]
    if len({*brokers}) != len(brokers):
        raise CommandFailed(f"{option}: {text!r} names a broker twice", None, EXIT_USAGE)
    return brokers


def parse_live_brokers(text: str, live: Collection[int]) -> list[int]:
    """Parse the broker ids of --brokers, which must all be live; raises CommandFailed."""
    brokers = parse_brokers(text, "--brokers")
    unknown = [broker for broker in brokers if broker not in live]
    if unknown:
        raise CommandFailed(
            f"expected live brokers ({', '.join(map(str, sorted(live)))}), found "
            f"{', '.join(map(str, unknown))}",
            "List them with: raylog brokers list",
        )
    return brokers


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Parse replicas such as 0:1,1:2, with commas between partitions, colons between brokers."""
    return {
        index: parse_brokers(one.replace(":", ","), "--assignment")
        for index, one in enumerate(text.split(","))
    }


def select(
    names: Iterable[str], known: Mapping[TopicPartition, PartitionReplicas]
) -> dict[TopicPartition, PartitionReplicas]:
    """Return partitions named by TOPIC or TOPIC:0,1; raises CommandFailed if one is unknown."""
    from raylog.cli.offset_reset import parse_partitions
    from raylog.client import TopicPartition

    found = {}
    for text in names:
        topic, indexes = parse_partitions(text)
        if indexes is None:
            found.update({key: one for key, one in known.items() if key.topic == topic})
            continue
        for index in indexes:
            key = TopicPartition(topic, index)
            if key not in known:
                raise CommandFailed(
                    f"there is no partition {key}",
                    f"List them with: raylog topics describe {topic}",
                )
            found[key] = known[key]
    return found


def topics_of(names: Iterable[str]) -> list[str]:
    """Return the topics named by TOPIC or TOPIC:0,1, each once."""
    from raylog.cli.offset_reset import parse_partitions

    return list(dict.fromkeys(parse_partitions(text)[0] for text in names))


def tell_outcomes(
    outcomes: Mapping[TopicPartition, KafkaError | None], done: str, *, as_json: bool
) -> None:
    """Print the outcome for each partition; raises CommandFailed if one was refused.

    A move that ended before it could be cancelled does not count as refused.
    """
    from raylog.wire.errors import ElectionNotNeeded, NoReassignmentInProgress

    rows = []
    refused = 0
    for key, failure in sorted(outcomes.items()):
        if failure is None:
            outcome = done
        elif isinstance(failure, ElectionNotNeeded):
            outcome = "not needed"
        elif isinstance(failure, NoReassignmentInProgress):
            outcome = "does not move"
        else:
            outcome = f"{failure.code.name}: {failure}".rstrip(": ")
            refused += 1
        rows.append({"topic": key.topic, "partition": key.partition, "outcome": outcome})
    if as_json:
        print_json(rows)
    elif rows:
        print_table(None, ["topic", "partition#", "outcome"], [tuple(row.values()) for row in rows])
    if refused:
        raise CommandFailed(
            f"{refused} of {len(rows)} partitions were refused",
            "Show their replicas with: raylog topics describe TOPIC",
        )
