"""Mistakes of clients, planted into the real client like those of `planted` into the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from raylog.actors.coordination.lease import LeaseHolder
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.aio import AsyncConsumer
from raylog.client.consumer.arguments import as_committed
from raylog.client.consumer.commits import CommitFailed, Commits, Done, Offsets
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.progress import COMMITTED
from raylog.client.errors import ClientError, ConnectionLost
from raylog.client.producer.accumulator import Accumulator
from raylog.client.producer.batch import Batch, ProducerIdentity
from raylog.client.producer.sender import Sender
from raylog.client.producer.transactional import Transactions
from raylog.client.transactions import TransactionRequests
from raylog.wire.errors import KafkaError
from raylog.wire.records import NO_SEQUENCE
from tests.sim.planting import Plant, plants_into, replace

CLIENT_PLANTS: dict[str, Plant] = {}


plant = plants_into(CLIENT_PLANTS)


# -- producers ---------------------------------------------------------------------------------


@plant
def numbers_repeats_anew(stack: ExitStack) -> None:
    """A retried batch gets new sequence numbers, as if it were another one."""
    refused = Accumulator.refused

    def mistaken(accumulator: Accumulator, batch: Batch, not_before_ms: float) -> None:
        batch.sequence = NO_SEQUENCE
        refused(accumulator, batch, not_before_ms)

    replace(stack, Accumulator, "refused", mistaken)


@plant
def repeats_behind_others(stack: ExitStack) -> None:
    """A retried batch is queued after later ones, which get its sequence numbers."""
    take_back = Accumulator._take_back

    def mistaken(
        accumulator: Accumulator, batch: Batch, again: Iterable[Batch], not_before_ms: float
    ) -> None:
        queue, sequence = accumulator._queues[batch.key], batch.sequence
        take_back(accumulator, batch, [], not_before_ms)
        queue.batches.extend(again)
        queue.next_sequence, batch.sequence = sequence, NO_SEQUENCE

    replace(stack, Accumulator, "_take_back", mistaken)


@plant
def takes_a_lost_answer_for_a_good_one(stack: ExitStack) -> None:
    """A batch whose connection ended counts as written."""
    refuse = Sender._refuse

    def mistaken(sender: Sender, batch: Batch, error: Exception) -> None:
        if isinstance(error, ConnectionLost):
            sender._acknowledge(batch, -1)
        else:
            refuse(sender, batch, error)

    replace(stack, Sender, "_refuse", mistaken)


# -- transactions ------------------------------------------------------------------------------


@plant
def repeats_an_end_as_the_other(stack: ExitStack) -> None:
    """An EndTxn whose answer was lost is repeated with the other outcome."""
    end = TransactionRequests.end

    async def mistaken(
        requests: TransactionRequests, identity: ProducerIdentity, *, commit: bool
    ) -> ProducerIdentity:
        timeout_ms, requests.timeout_ms = requests.timeout_ms, 0
        try:
            return await end(requests, identity, commit=commit)
        except ClientError:
            requests.timeout_ms = timeout_ms
            return await end(requests, identity, commit=not commit)
        finally:
            requests.timeout_ms = timeout_ms

    replace(stack, TransactionRequests, "end", mistaken)


@plant
def commits_offsets_beside_the_transaction(stack: ExitStack) -> None:
    """Offsets of a transaction count at once, whatever its outcome."""

    async def mistaken(transactions: Transactions, offsets: Any, group: GroupMetadata) -> None:
        transactions.state.require_open("send_offsets_to_transaction")
        commits = Commits(
            transactions._requests.core,
            transactions._requests.groups,
            group.group_id,
            lambda: group,
            hold=lambda _: None,
        )
        try:
            await commits.commit(as_committed(offsets))
        except (ClientError, KafkaError) as error:
            transactions.state.broken(error)
        transactions.state.check()

    replace(stack, Transactions, "send_offsets", mistaken)


@plant
def commits_offsets_for_nobody(stack: ExitStack) -> None:
    """Offsets of a transaction are committed without the member's generation (before KIP-447)."""
    send_offsets = Transactions.send_offsets

    async def mistaken(transactions: Transactions, offsets: Any, group: GroupMetadata) -> None:
        await send_offsets(transactions, offsets, GroupMetadata(group.group_id))

    replace(stack, Transactions, "send_offsets", mistaken)


# -- groups ------------------------------------------------------------------------------------


@plant
def commits_what_is_fetched(stack: ExitStack) -> None:
    """Commits use the fetch position instead of the application's position."""
    positions = ConsumerCore.positions

    def mistaken(consumer: ConsumerCore, keys: Iterable[TopicPartition]) -> dict[Any, Any]:
        found = positions(consumer, keys)
        fetched = {
            key: progress.fetch_offset
            for key in found
            if (progress := consumer.fetcher.progress_of(key)) is not None
            and progress.fetch_offset is not None
        }
        return {**found, **as_committed(fetched)}

    replace(stack, ConsumerCore, "positions", mistaken)


@plant
def commits_what_it_returns(stack: ExitStack) -> None:
    """Automatic commits happen when a poll returns, not in the next one."""
    until = AsyncConsumer._until

    async def mistaken(
        consumer: AsyncConsumer[bytes, bytes], timeout_ms: float, take: Callable[[], Any]
    ) -> Any:
        taken = await until(consumer, timeout_ms, take)
        if taken and consumer.core.has_auto_commit:
            consumer.core.commit_moved()
        return taken

    replace(stack, AsyncConsumer, "_until", mistaken)


@plant
def keeps_records_of_revoked_partitions(stack: ExitStack) -> None:
    """Fetched records of a revoked partition are returned, although another member owns it."""
    remove = Fetcher.remove

    def mistaken(fetcher: Fetcher, keys: Iterable[TopicPartition]) -> None:
        gone = list(keys)
        kept = {
            key: (progress, list(progress.blocks))
            for key in gone
            if (progress := fetcher.progress_of(key)) is not None and progress.blocks
        }
        remove(fetcher, gone)
        for key, (progress, blocks) in kept.items():
            progress.blocks.extend(blocks)
            fetcher.buffered_bytes += sum(block.size for block in blocks)
            fetcher._ready[key] = progress

    replace(stack, Fetcher, "remove", mistaken)


@plant
def believes_in_refused_commits(stack: ExitStack) -> None:
    """A commit of an earlier generation that was refused counts as done."""
    commit = Commits._commit

    async def mistaken(
        commits: Commits, offsets: Offsets, holds: Mapping[TopicPartition, object]
    ) -> None:
        try:
            await commit(commits, offsets, holds)
        except CommitFailed:
            return

    replace(stack, Commits, "_commit", mistaken)


@plant
def sends_commits_side_by_side(stack: ExitStack) -> None:
    """Commits and their retries are sent concurrently, so an older one may arrive last."""

    def mistaken(commits: Commits, offsets: Offsets, done: Done) -> None:
        async def alone() -> None:
            failure: Exception | None = None
            try:
                await commits._commit(offsets, {key: commits._hold(key) for key in offsets})
            except (ClientError, KafkaError) as error:
                failure = error
            done(offsets, failure)

        commits._worker = asyncio.get_running_loop().create_task(alone())

    replace(stack, Commits, "submit", mistaken)


@plant
def goes_on_where_it_was(stack: ExitStack) -> None:
    """A reassigned partition continues at the consumer's old position, not at the committed one."""
    remove, start_from = Fetcher.remove, Fetcher.start_from
    known: dict[tuple[int, TopicPartition], int] = {}

    def removing(fetcher: Fetcher, keys: Iterable[TopicPartition]) -> None:
        gone = list(keys)
        for key in gone:
            progress = fetcher.progress_of(key)
            if progress is not None and progress.position is not None:
                known[id(fetcher), key] = progress.position
        remove(fetcher, gone)

    def starting(fetcher: Fetcher, key: TopicPartition, start: int) -> None:
        position = known.pop((id(fetcher), key), None)
        if start == COMMITTED and position is not None:
            fetcher.seek(key, position)
        else:
            start_from(fetcher, key, start)

    replace(stack, Fetcher, "remove", removing)
    replace(stack, Fetcher, "start_from", starting)


# -- coordinators ------------------------------------------------------------------------------


@plant
def answers_without_a_lease(stack: ExitStack) -> None:
    """A coordinator whose Broker hangs answers from memory after its successor has begun."""

    def mistaken(lease: LeaseHolder, then: Callable[[bool], None]) -> None:
        then(True)

    replace(stack, LeaseHolder, "check", mistaken)
