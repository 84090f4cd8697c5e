"""The topic in which runs of pipelines tell of themselves, and a run's place in it.

`__raylog_pipelines` is on the pipeline's own cluster, that of its sink: compacted, made by the
first run. A pipeline's records are in one partition, chosen by its name once and for all. What they
say, and what follows from it: `runs`.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace

from raylog.actors.runtime.processes import ProcessRecord, is_running, pid_space, record_of
from raylog.client import (
    EARLIEST,
    LATEST,
    BlockingClient,
    BlockingConsumer,
    BlockingProducer,
    ClientError,
    ClientSettings,
    ConsumerSettings,
    Delivery,
    NewTopic,
    ProducerSettings,
    RequestTimedOut,
    Resource,
    ResourceType,
    TopicPartition,
    parse_bootstrap,
)
from raylog.client.closing import Closing
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.runs import (
    BEAT_S,
    SILENCE_S,
    STARTING,
    Place,
    RunState,
    RunWatch,
    Standing,
    StopRequest,
    encode,
    run_key,
    stop_key,
)
from raylog.wire.errors import KafkaError, TopicAlreadyExists

log = logging.getLogger(__name__)

TOPIC = "__raylog_pipelines"
PARTITIONS = 8
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1024 * 1024),
    "unclean.leader.election.enable": "false",
}
"""Of a topic that is made here. Small segments: only those that are full are compacted."""
_REPLICATION_FACTOR_MAX = 3
_TIMEOUT_MS = 10_000
"""How long one word may take until the topic has it."""
_POLL_MS = 200
_HELD: set[str] = set()
"""The runs of this process."""

Tell = Callable[[str], object]
"""Takes progress."""
_PAUSE_S = 0.5


def _ignore(_: str) -> None:
    """Nobody is told."""


class AlreadyRuns(PipelineFailed):
    """Another process runs the pipeline."""


class Displaced(PipelineFailed):
    """Another run has taken the pipeline since."""


class RunTopic(Closing):
    """One pipeline's records: what is there already, and what comes. For one thread at a time."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = _TIMEOUT_MS) -> None:
        self.watch = RunWatch(name)
        self._timeout_ms = timeout_ms
        addresses = parse_bootstrap(bootstrap)
        settings = ClientSettings(addresses, operation_timeout_ms=timeout_ms)
        self._client = BlockingClient(bootstrap, settings)
        self._key = TopicPartition(TOPIC, zlib.crc32(name.encode()) % PARTITIONS)
        self._consumer: BlockingConsumer | None = None
        self._producer: BlockingProducer[bytes, bytes] | None = None
        self._delivered: list[Delivery] = []

    def exists(self) -> bool:
        """Whether the topic is there."""
        return TOPIC in self._client.metadata([TOPIC]).topics

    def prepare(self) -> None:
        """Make the topic if there is none; raises PipelineFailed for one that is not as it must."""
        if not self.exists():
            replicas = min(_REPLICATION_FACTOR_MAX, len(self._client.metadata([]).nodes))
            try:
                self._client.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, CONFIGS)])
            except TopicAlreadyExists:  # another run has made it: wait until it can be written
                self._client.list_offsets({self._key: LATEST})
        found = len(self._client.describe_topic(TOPIC).partitions)
        if found < PARTITIONS:
            raise PipelineFailed(
                f"topic {TOPIC} has {found} partitions, expected {PARTITIONS} or more"
            )
        configs = self._client.describe_configs(Resource(ResourceType.TOPIC, TOPIC))
        policy = next(each.value for each in configs if each.name == "cleanup.policy")
        if policy != "compact":
            raise PipelineFailed(
                f"topic {TOPIC} has cleanup.policy={policy}, expected compact: raylog topics alter "
                f"{TOPIC} --config cleanup.policy=compact"
            )

    def read(self, end: int | None = None) -> RunWatch:
        """All that the topic has by now, or all below an offset that is written."""
        consumer = self._reading()
        if end is None:
            end = self._client.list_offsets({self._key: LATEST})[self._key].offset
        deadline = time.monotonic() + self._timeout_ms / 1000
        while consumer.position(self._key) < end:
            if time.monotonic() >= deadline:
                raise RequestTimedOut(f"{self._key} was not read to its end, offset {end}")
            self._take(consumer, _POLL_MS)
        return self.watch

    def read_more(self, timeout_ms: float = 0.0) -> RunWatch:
        """What is there already, or the first that comes within a time."""
        self._take(self._reading(), timeout_ms)
        return self.watch

    def write(self, key: bytes, value: bytes) -> int | None:
        """Add a record, and wait until all in-sync replicas have it.

        Returns the offset behind it; None if that is not known.
        """
        if self._producer is None:
            settings = ProducerSettings(delivery_timeout_ms=self._timeout_ms)
            self._producer = self._client.producer(settings, self._delivered.append)
        self._delivered.clear()
        try:
            self._producer.send(TOPIC, value, key, partition=self._key.partition)
            self._producer.flush()
        except (ClientError, KafkaError):
            self._producer.close(0)
            self._producer = None  # it has an identity that the next word must not depend on
            raise
        offset = self._delivered[-1].base_offset if self._delivered else -1
        return None if offset < 0 else offset + 1

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def _reading(self) -> BlockingConsumer:
        if self._consumer is None:
            self._consumer = self._client.consumer(ConsumerSettings(max_wait_ms=_POLL_MS))
            self._consumer.assign({self._key: EARLIEST})
        return self._consumer

    def _take(self, consumer: BlockingConsumer, timeout_ms: float) -> None:
        for found in consumer.poll(timeout_ms):
            for record in found.records:
                where = f"{self._key} at offset {record.offset}"
                self.watch.add(record.key, record.value, where)


def here() -> Place:
    """This process."""
    this = record_of("", os.getpid())
    assert this is not None, "this process runs"
    return Place(socket.gethostname(), this.pid, this.started, pid_space())


def look(topic: RunTopic, tell: Tell = _ignore) -> tuple[RunState | None, Standing]:
    """The newest run, and whether it runs; nothing is made or written."""
    if not topic.exists():
        return None, Standing.ENDED
    topic.read()
    found = standing(topic, tell)
    return topic.watch.holder, found


def standing(topic: RunTopic, tell: Tell = _ignore, silence_s: float | None = None) -> Standing:
    """Whether the pipeline runs; waits for a sign of life where that is on another machine.

    UNKNOWN: there was none for `silence_s`, `SILENCE_S` unless told. `tell` hears of the wait.
    """
    deadline = time.monotonic() + (SILENCE_S if silence_s is None else silence_s)
    first = topic.watch.holder
    is_told = False
    while True:
        holder = topic.watch.holder
        found = topic.watch.standing(pid_space(), holder is not None and _is_there(holder))
        if found is not Standing.UNKNOWN or holder is None:
            return found
        if holder != first:
            return Standing.RUNS
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return Standing.UNKNOWN
        if not is_told:
            tell(f"waiting to hear of {topic.watch.name}, last run as {holder.place}")
            is_told = True
        topic.read_more(min(left_s * 1000, _POLL_MS))


def _is_there(run: RunState) -> bool:
    """Whether a run's process is there; of this process, whether the run is."""
    place = run.place
    is_process = is_running(ProcessRecord("", place.pid, place.started))
    return is_process and (place.pid != os.getpid() or run.run in _HELD)


class HeldRun(Closing):
    """The pipeline as this process runs it: tells of it, and hears what others want."""

    def __init__(
        self,
        topic: RunTopic,
        heard: Callable[[StopRequest], object],
        tell: Tell = _ignore,
        silence_s: float | None = None,
    ) -> None:
        """Take the pipeline; raises AlreadyRuns, PipelineFailed.

        `heard` is called from another thread, `tell` takes progress.
        """
        self.failure: Exception | None = None
        """Why the run cannot go on: Displaced, or what a record could not be read for."""
        self._topic, self._heard = topic, heard
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._beat = 0
        topic.prepare()
        self.state = self._claimed(tell, silence_s)
        _HELD.add(self.state.run)
        self._thread = threading.Thread(target=self._beats, name="pipeline's beats", daemon=True)
        self._thread.start()

    def tell(self, state: RunState, *, at_once: bool = True) -> None:
        """Have the newest word of the run be told, at once or with the next beat.

        What cannot be told now is told by a later beat. Raises Displaced.
        """
        self.state = state
        if not at_once:
            return
        try:
            self.confirm()
        except (ClientError, KafkaError) as failure:
            log.warning("%s: not told yet: %s", state.name, failure)

    def confirm(self, patience_s: float = 0.0) -> None:
        """Tell, and see that nobody else holds the pipeline; raises Displaced.

        ClientError and KafkaError: for `patience_s` that could not be known.
        """
        deadline = time.monotonic() + patience_s
        while True:
            try:
                with self._lock:
                    return self._confirm()
            except (ClientError, KafkaError):
                if time.monotonic() >= deadline:
                    raise
            self._ended.wait(_PAUSE_S)

    def _confirm(self) -> None:
        self._see(self._topic.read_more())
        self._beat += 1
        state = replace(self.state, beat=self._beat, at_ms=_now_ms())
        end = self._topic.write(run_key(state.name), encode(state))
        self._see(self._topic.read(end))

    def close(self) -> None:
        """Tell no more."""
        _HELD.discard(self.state.run)
        self._ended.set()
        self._thread.join()

    def _claimed(self, tell: Tell, silence_s: float | None) -> RunState:
        """Take the pipeline unless it runs."""
        name = self._topic.watch.name
        self._topic.read()
        found = standing(self._topic, tell, silence_s)
        holder = self._topic.watch.holder
        if found is Standing.RUNS and holder is not None:
            raise AlreadyRuns(f"{name} is running already, as {holder.place}")
        state = RunState(
            name,
            here(),
            STARTING,
            _now_ms(),
            run=secrets.token_hex(8),
            generation=self._topic.watch.next_generation(),
            at_ms=_now_ms(),
        )
        self._topic.write(run_key(name), encode(state))
        holder = self._topic.read().holder
        if holder is not None and holder.run != state.run:
            raise AlreadyRuns(f"{name} was started at the same time, as {holder.place}")
        return state

    def _see(self, watch: RunWatch) -> None:
        """Do what others have told; raises Displaced."""
        if not watch.is_held_by(self.state.run):
            who = "nobody known" if watch.holder is None else watch.holder.place
            raise Displaced(f"{watch.name} was taken over by another run: {who}")
        request = watch.asked_to_stop(self.state.run)
        if request is not None:
            self._heard(request)

    def _beats(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self.confirm()
            except (ClientError, KafkaError) as failure:
                log.warning("%s: not told yet: %s", self.state.name, failure)
            except Exception as failure:  # noqa: BLE001  # it is raised in the run's own thread
                self.failure = failure
                return


def ask_to_stop(topic: RunTopic, run: str, *, is_now: bool) -> None:
    """Have a run hear that it shall end."""
    topic.write(stop_key(topic.watch.name), encode(StopRequest(run, is_now)))


def follow(topic: RunTopic, run: str, timeout_s: float) -> Standing:
    """Wait until a run has ended: RUNS: it has not; UNKNOWN: it was silent for `SILENCE_S`."""
    heard = time.monotonic()
    deadline = heard + timeout_s
    last = topic.watch.holder
    while True:
        holder = topic.read_more(_POLL_MS).holder
        if holder is None or holder.run != run:
            return Standing.ENDED
        found = topic.watch.standing(pid_space(), _is_there(holder))
        if found in (Standing.ENDED, Standing.GONE):
            return found
        now = time.monotonic()
        if holder != last:
            last, heard = holder, now
        if found is Standing.UNKNOWN and now - heard >= SILENCE_S:
            return found
        if now >= deadline:
            return Standing.RUNS


def _now_ms() -> int:
    return round(time.time() * 1000)
