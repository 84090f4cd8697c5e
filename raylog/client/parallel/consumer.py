"""`ParallelConsumer`: a group's consumer, the window and its workers."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import Any, TypeVar

from raylog.client.admin.aio import AsyncAdmin
from raylog.client.callables import argument_names, check_serializers
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.errors import InvalidSetting
from raylog.client.parallel.effects import Statistics, WindowSettings
from raylog.client.parallel.engine import Engine, EngineSettings
from raylog.client.parallel.interfaces import Sink, Source, Workers
from raylog.client.parallel.job import Job
from raylog.client.parallel.policy import (
    DeadLetter,
    FailureTopics,
    Order,
    RetryPolicy,
    check_topics,
)
from raylog.client.parallel.sinks import ProducerSink
from raylog.client.parallel.sources import AssignedSource, GroupSource
from raylog.client.parallel.topics import ensure_topics
from raylog.client.parallel.window import Window
from raylog.client.parallel.workers.processes import ProcessWorkers
from raylog.client.parallel.workers.tasks import TaskWorkers
from raylog.client.parallel.workers.threads import ThreadWorkers
from raylog.client.serializers import Deserializer, Serializer
from raylog.client.setting_parsing import Config, client_and_consumer
from raylog.client.settings import ClientSettings, ProducerSettings

E = TypeVar("E", bound=StrEnum)
_DRAIN_MS_MAX = 30_000.0


class WorkerKind(StrEnum):
    """What runs the function."""

    THREAD = "thread"
    PROCESS = "process"
    ASYNCIO = "asyncio"
    """Tasks of the consumer's event loop; the function is a coroutine function."""
    RAY = "ray"


_OWN: Mapping[str, object] = {"enable_auto_commit": False}


class ParallelConsumer:
    """Reads topics in a group and has workers run a function on the records.

        def handle(record: ConsumerRecord) -> None: ...

        ParallelConsumer("localhost:9092", ["orders"], handle, group_id="billing", workers=64).run()

    `fn` gets one record, or a list of records if `batch_size` is given. A record is committed once
    its call has returned and every earlier record of its partition is finished too. Finished
    records beyond that offset are listed in the commit's metadata, so that a restart does not run
    them again. A call that raises is retried according to `retry`; after that the record goes to a
    retry topic or to the dead-letter topic. With `dead_letter=None` the consumer ends instead,
    raising ProcessingFailed.

    With `results=True`, the values that `fn` returns are produced: None, a ProducerRecord, or
    several; with a topic as `sink`, plain values too. With a `transactional_id`, results and
    offsets are committed in one transaction: exactly once.

    All other arguments are Kafka's consumer settings, as for `Consumer`. An instance runs only
    once.
    """

    def __init__(
        self,
        config: Config,
        topics: Iterable[str],
        fn: Callable[..., object],
        *,
        workers: int = 8,
        worker_kind: WorkerKind | str = WorkerKind.THREAD,
        order: Order | str = Order.KEY,
        batch_size: int | None = None,
        retry: RetryPolicy | None = None,
        dead_letter: DeadLetter | None = DeadLetter(),  # noqa: B008  # frozen
        results: bool = False,
        sink: str | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        commit_interval_ms: float = 1_000.0,
        drain_timeout_ms: float | None = None,
        delivery_timeout_ms: int = 120_000,
        buffer_records: int = 10_000,
        buffer_bytes: int = 64 * 1024 * 1024,
        max_record_bytes: int = 1_000_000,
        partitions: Iterable[TopicPartition] | None = None,
        ray_options: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        """Create a consumer that runs `fn`.

        `partitions`: read these without joining the group whose offsets are committed.
        `drain_timeout_ms`: how long a rebalance or the shutdown waits for running calls; by default
        30 s, but at most half of `max_poll_interval_ms`. `delivery_timeout_ms`: how long to try to
        send a result, and to look for its topic, before the run counts as failed.
        `max_record_bytes`: the limit of a result or letter; raise it if the topics'
        `max.message.bytes` is larger.
        """
        self._topics = _topics(topics)
        self._client, self._consumer = _settings(config, settings)
        self._kind = _choice(WorkerKind, "worker_kind", worker_kind)
        retry = retry or RetryPolicy()
        _check_types(workers, retry, dead_letter)
        check_serializers(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
        )
        if sink is not None:
            check_topics("sink", [sink])
        assert self._consumer.group_id is not None
        self._window_settings = WindowSettings(
            group=self._consumer.group_id,
            cells=workers,
            batch_size=batch_size or 1,
            order=_choice(Order, "order", order),
            retry=retry,
            dead_letter=dead_letter,
            transactional=transactional_id is not None,
            buffer_records=buffer_records,
            buffer_bytes=buffer_bytes,
            record_bytes_max=max_record_bytes,
        )
        if transactional_id is not None:
            self._consumer = replace(self._consumer, read_committed=True)
        self._producer = _producer_settings(
            transactional_id, transaction_timeout_ms, delivery_timeout_ms
        )
        names = FailureTopics(self._window_settings.group, retry, dead_letter)
        self._names = names
        retry_topics = [name for topic in self._topics for name in names.retry_topics(topic)]
        self._job = Job(
            fn,
            as_batch=batch_size is not None,
            keeps_results=results or sink is not None or transactional_id is not None,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            retry_topics=frozenset(retry_topics),
            sink=sink,
            record_bytes_max=max_record_bytes,
        )
        _check_function(fn, self._kind, self._job)
        self._ray_options = ray_options
        self._partitions = None if partitions is None else list(partitions)
        self._engine_settings = EngineSettings(
            commit_interval_ms=commit_interval_ms,
            drain_timeout_ms=_drain_ms(drain_timeout_ms, self._consumer),
            poll_records=max(1, min(self._consumer.max_poll_records, buffer_records)),
        )
        self._window = Window(self._window_settings, Random())  # noqa: S311  # jitter
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._is_stopped = False

    def run(self) -> None:
        """Process until `stop`, Ctrl-C or a failure that no record caused."""
        asyncio.run(self.run_async())

    async def run_async(self) -> None:
        """Like `run`, on the running event loop; cancellation also drains and commits."""
        with self._lock:
            if self._engine is not None:
                raise InvalidSetting("a ParallelConsumer runs once: make another one")
            self._loop = asyncio.get_running_loop()
            admin = AsyncAdmin(None, self._client)
            self._engine = Engine(
                self._source(admin),
                self._sink(admin),
                self._workers(),
                self._window,
                self._engine_settings,
            )
        try:
            await ensure_topics(admin, self._names, self._topics)
            if not self._is_stopped:
                await self._engine.run(self._all_topics())
        finally:
            await admin.close()

    def stop(self) -> None:
        """Make `run` drain, commit and return. Any thread may call it, and the function too."""
        with self._lock:
            self._is_stopped = True
            loop, engine = self._loop, self._engine
        if loop is not None and engine is not None and not loop.is_closed():
            loop.call_soon_threadsafe(engine.stop)

    def statistics(self) -> Statistics:
        """Return counts and current state. For any thread."""
        return self._window.count_statistics()

    def _all_topics(self) -> list[str]:
        names = [name for topic in self._topics for name in self._window.watch_retry_topics(topic)]
        return [*self._topics, *names]

    def _source(self, admin: AsyncAdmin) -> Source:
        if self._partitions is None:
            return GroupSource(admin, self._consumer)
        return AssignedSource(admin, self._consumer, self._partitions)

    def _sink(self, admin: AsyncAdmin) -> Sink:
        async def ensure() -> None:
            await ensure_topics(admin, self._names, self._topics)

        return ProducerSink(
            lambda: admin.producer(self._producer),
            transactional=self._window_settings.transactional,
            before_again=ensure,
        )

    def _workers(self) -> Workers:
        match self._kind:
            case WorkerKind.THREAD:
                return ThreadWorkers(self._job, self._window_settings.cells)
            case WorkerKind.PROCESS:
                return ProcessWorkers(self._job)
            case WorkerKind.ASYNCIO:
                return TaskWorkers(self._job)
            case WorkerKind.RAY:
                from raylog.client.parallel.workers.actors import RayWorkers

                return RayWorkers(self._job, self._ray_options)


def _topics(topics: Iterable[str]) -> list[str]:
    if not isinstance(topics, Iterable):
        raise InvalidSetting(
            f"expected the address, then topics, then the function; found {topics!r} as topics"
        )
    found = [topics] if isinstance(topics, str) else list(topics)
    if not found:
        raise InvalidSetting("expected topics, found none")
    check_topics("each of topics", found)
    return found


def _settings(
    config: Config, settings: Mapping[str, object]
) -> tuple[ClientSettings, ConsumerSettings]:
    """Return the settings, without auto-commit: only the window commits offsets."""
    own = argument_names(ParallelConsumer)
    client, consumer = client_and_consumer(config, {**_OWN, **settings}, own)
    if consumer.group_id is None:
        raise InvalidSetting("expected group_id, found none: offsets are committed for a group")
    if consumer.enable_auto_commit:
        raise InvalidSetting("enable_auto_commit=True would commit records that are not finished")
    return client, consumer


def _producer_settings(
    transactional_id: str | None, timeout_ms: int | None, delivery_timeout_ms: int
) -> ProducerSettings:
    """Send each result at once, because cells wait for acknowledgements; batch in transactions."""
    usual = ProducerSettings(transactional_id=transactional_id)
    made = replace(
        usual,
        delivery_timeout_ms=delivery_timeout_ms,
        max_block_ms=min(usual.max_block_ms, delivery_timeout_ms),
        linger_ms=0 if transactional_id is None else usual.linger_ms,
    )
    return made if timeout_ms is None else replace(made, transaction_timeout_ms=timeout_ms)


def _drain_ms(given: float | None, consumer: ConsumerSettings) -> float:
    half = consumer.max_poll_interval_ms / 2
    if given is None:
        return min(_DRAIN_MS_MAX, half)
    if given > half:
        raise InvalidSetting(
            f"expected drain_timeout_ms of at most half of max_poll_interval_ms="
            f"{consumer.max_poll_interval_ms}, found {given:g}"
        )
    return given


def _choice(kinds: type[E], name: str, given: str) -> E:
    try:
        return kinds(given)
    except ValueError:
        known = ", ".join(kinds)
        raise InvalidSetting(f"expected {name} to be one of {known}; found {given!r}") from None


def _check_types(workers: object, retry: object, dead_letter: object) -> None:
    """Refuse common mistakes in place of the arguments' types."""
    if not isinstance(workers, int) or workers < 1:
        raise InvalidSetting(f"expected workers to be a number of 1 or more, found {workers!r}")
    if not isinstance(retry, RetryPolicy):
        raise InvalidSetting(f"expected retry to be a RetryPolicy(attempts=...), found {retry!r}")
    if dead_letter is not None and not isinstance(dead_letter, DeadLetter):
        raise InvalidSetting(
            f"expected dead_letter to be None or a DeadLetter(topic_name=...), "
            f"found {dead_letter!r}"
        )


def _check_function(fn: Callable[..., object], kind: WorkerKind, job: Job) -> None:
    """Refuse a function that the workers cannot run."""
    if not callable(fn):
        raise InvalidSetting(f"expected a function to call on records, found {fn!r}")
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004  # of a callable object
    )
    if is_async != (kind is WorkerKind.ASYNCIO):
        wanted = "a coroutine function" if kind is WorkerKind.ASYNCIO else "a plain function"
        raise InvalidSetting(f"workers of kind {kind} run {wanted}, found {fn!r}")
    if kind is WorkerKind.PROCESS:
        try:
            pickle.dumps(job)
        except Exception as error:
            raise InvalidSetting(
                f"workers of kind process need a function that can be pickled, such as one of a "
                f"module; found {fn!r}: {error}"
            ) from error
