"""The commands `raylog transactions describe-producers` and `hanging`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import Row, print_rows

if TYPE_CHECKING:
    from raylog.client import ActiveProducer, BlockingClient, TopicPartition

_MS_PER_MINUTE = 60_000
_PRODUCER_COLUMNS = [
    "producer#",
    "epoch#",
    "coordinator epoch#",
    "last sequence#",
    "last timestamp#",
    "transaction since offset#",
]
_HANGING_COLUMNS = [
    "topic",
    "partition#",
    "producer#",
    "epoch#",
    "coordinator epoch#",
    "since offset#",
    "last timestamp#",
    "minutes#",
]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="Only this topic.", autocompletion=complete_topics),
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Only this partition of the topic.")
]
BrokerOption = Annotated[
    int | None,
    typer.Option(
        "--broker", metavar="ID", min=0, help="Ask this broker's replicas instead of leaders."
    ),
]


def describe_producers(
    topic: Annotated[
        str, typer.Argument(help="Topic of the partition.", autocompletion=complete_topics)
    ],
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition.")],
    broker: BrokerOption = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the active producers of a partition, and where open transactions start.

    Shows idempotent and transactional producers. The command asks the partition's
    leader, or with --broker another broker that has a replica.
    """
    from raylog.client import TopicPartition

    key = TopicPartition(topic, partition)
    with connect(bootstrap) as client:
        require_partition(client, key)
        found = client.describe_producers([key], broker_id=broker)[key]
    rows = [_row(producer) for producer in found]
    note = "" if rows else f"{key} has no active producers"
    print_rows(_PRODUCER_COLUMNS, rows, as_json=as_json, note=note)


def hanging(
    topic: TopicOption = None,
    partition: PartitionOption = None,
    broker: BrokerOption = None,
    minutes: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            help="How long a transaction may stay open without writes.",
        ),
    ] = 15,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Find hanging transactions, which no coordinator will end.

    Consumers with read_committed cannot read past them. They have been open,
    with no writes, for longer than --max-transaction-timeout, and no coordinator
    knows that it must write their marker. Give a topic, a broker that has
    replicas, or both. End them with: raylog transactions abort
    """
    if topic is None and broker is None:
        raise typer.BadParameter("give --topic or --broker: all partitions would be too many")
    if topic is None and partition is not None:
        raise typer.BadParameter("--partition needs --topic")
    with connect(bootstrap) as client:
        keys = _keys(client, topic, partition, broker)
        found = client.find_hanging_transactions(
            keys, max_timeout_ms=minutes * _MS_PER_MINUTE, broker_id=broker
        )
    rows: list[Row] = [
        {
            "topic": one.key.topic,
            "partition": one.key.partition,
            "producer_id": one.producer.producer_id,
            "producer_epoch": one.producer.producer_epoch,
            "coordinator_epoch": one.producer.coordinator_epoch,
            "start_offset": one.producer.start_offset,
            "last_timestamp_ms": one.producer.last_timestamp_ms,
            "minutes": _minutes_since(one.producer.last_timestamp_ms),
        }
        for one in found
    ]
    note = "" if rows else f"no hanging transactions in {len(keys)} partitions"
    print_rows(_HANGING_COLUMNS, rows, as_json=as_json, note=note)


def _keys(
    client: BlockingClient, topic: str | None, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    """Return the partitions to check. Raises as `require_partition` does."""
    from raylog.client import TopicPartition

    if topic is not None and partition is not None:
        require_partition(client, TopicPartition(topic, partition))
    known = client.describe_partitions(None if topic is None else [topic])
    return [
        key
        for key, one in known.items()
        if partition in (None, key.partition) and (broker is None or broker in one.replicas)
    ]


def require_partition(client: BlockingClient, key: TopicPartition) -> None:
    """Raise UnknownTopicOrPartition or CommandFailed if a partition does not exist."""
    count = len(client.describe_topic(key.topic).partitions)
    if key.partition >= count:
        raise CommandFailed(
            f"{key} does not exist: {key.topic} has partitions 0 to {count - 1}",
            f"List them with: raylog topics describe {key.topic}",
        )


def _row(producer: ActiveProducer) -> Row:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "start_offset": producer.start_offset if producer.start_offset >= 0 else None,
    }


def _minutes_since(timestamp_ms: int) -> int:
    return int(time.time() * 1_000 - timestamp_ms) // _MS_PER_MINUTE
