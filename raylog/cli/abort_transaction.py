"""The command `raylog transactions abort`: ends a transaction that its producer does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.hanging_transactions import require_partition
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from raylog.cli.output import confirm, print_done

if TYPE_CHECKING:
    from raylog.client import BlockingClient, TopicPartition

_OF_PRODUCERS = "List them with: raylog transactions describe-producers TOPIC PARTITION"
_PRODUCER_OPTIONS = "--producer-id, --producer-epoch and --coordinator-epoch"


TransactionalId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id",
        metavar="ID",
        help="Abort the open transaction of this id, prepared or not, and fence its producers.",
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        help="Topic in which the transaction hangs.",
        autocompletion=complete_topics,
    ),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Partition in which it hangs.")
]
StartOffset = Annotated[
    int | None,
    typer.Option("--start-offset", min=0, help="Offset at which it starts in the partition."),
]
ProducerId = Annotated[
    int | None,
    typer.Option("--producer-id", min=0, help="Instead of the offset: id of its producer."),
]
ProducerEpoch = Annotated[
    int | None,
    typer.Option("--producer-epoch", min=0, help="With --producer-id: epoch of the producer."),
]
CoordinatorEpoch = Annotated[
    int | None,
    typer.Option(
        "--coordinator-epoch",
        min=-1,
        help="With --producer-id: epoch of the coordinator; -1 if it never wrote a marker.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def abort(
    transactional_id: TransactionalId = None,
    topic: Topic = None,
    partition: Partition = None,
    start_offset: StartOffset = None,
    producer_id: ProducerId = None,
    producer_epoch: ProducerEpoch = None,
    coordinator_epoch: CoordinatorEpoch = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort a transaction that does not end: a hanging or a prepared one.

    With --transactional-id, the coordinator aborts it in all partitions, as if
    a new producer had taken over the id. A hanging transaction has no
    coordinator: give one partition, and the offset at which the transaction
    starts there, as `raylog transactions hanging` shows it. The leader of that
    partition then ends it there, and in no other partition. Old brokers do not
    report the offset: give the producer and the epochs instead.
    """
    from raylog.client import TopicPartition

    explicit = (producer_id, producer_epoch, coordinator_epoch)
    in_partition = (topic, partition, start_offset, *explicit)
    if transactional_id is not None:
        if any(option is not None for option in in_partition):
            raise typer.BadParameter("--transactional-id takes no other options")
        with connect(bootstrap) as client:
            _abort_everywhere(client, transactional_id, yes=yes)
        return
    if topic is None or partition is None:
        raise typer.BadParameter("give --transactional-id, or --topic and --partition")
    given = sum(option is not None for option in explicit)
    if given not in (0, len(explicit)) or (start_offset is None) == (given == 0):
        raise typer.BadParameter(f"give --start-offset, or {_PRODUCER_OPTIONS}")
    key = TopicPartition(topic, partition)
    with connect(bootstrap) as client:
        require_partition(client, key)
        producer = _producer_at(client, key, start_offset) if start_offset is not None else explicit
        confirm(f"Abort the transaction of producer {producer[0]} in {key}?", yes=yes)
        client.abort_in_partition(key, *(number or 0 for number in producer))
    print_done(f"aborted the transaction of producer {producer[0]} in {key}")


def _producer_at(
    client: BlockingClient, key: TopicPartition, start_offset: int
) -> tuple[int, int, int]:
    """Return producer id, producer epoch and coordinator epoch of an open transaction.

    Raises CommandFailed if none starts at the offset.
    """
    for one in client.describe_producers([key])[key]:
        if one.start_offset == start_offset:
            return one.producer_id, one.producer_epoch, one.coordinator_epoch
    raise CommandFailed(
        f"no open transaction starts at offset {start_offset} of {key}", _OF_PRODUCERS
    )


def _abort_everywhere(client: BlockingClient, transactional_id: str, *, yes: bool) -> None:
    before = client.describe_transaction(transactional_id)
    confirm(
        f"Fence the producers of {transactional_id} (state of its transaction: {before.state})?",
        yes=yes,
    )
    client.fence_transactional_id(transactional_id)
    match before.state:
        case "Ongoing":
            what = f"aborted the transaction of {transactional_id}"
        case "PrepareCommit":
            what = f"the transaction of {transactional_id} was already being committed"
        case _:
            what = f"{transactional_id} had no open transaction"
    print_done(f"{what}; its producers are fenced")
