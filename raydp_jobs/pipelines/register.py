"""The topic in which pipeline runs report themselves, and how a run holds its pipeline.

`__raylog_pipelines` is on the pipeline's own cluster, which is that of its sink: compacted, created
by the first run. A pipeline's records are in one partition, determined by its name forever. For
their contents and meaning, see `runs`.
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
"""Settings of a new topic. Segments are small because only full ones are compacted."""
_REPLICATION_FACTOR_MAX = 3
_TIMEOUT_MS = 10_000
"""How long one report may take to be written."""
_POLL_MS = 200
_HELD: set[str] = set()
"""The runs of this process."""

Tell = Callable[[str], object]
"""Takes progress messages."""
_PAUSE_S = 0.5


def _ignore(_: str) -> None:
    """Discard a progress message."""


class AlreadyRuns(PipelineFailed):
    """Another process runs the pipeline."""


class Displaced(PipelineFailed):
    """Another run has since taken over the pipeline."""


class RunTopic(Closing):
    """One pipeline's records: reads existing and new ones, and writes. For one thread at a time."""

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
        """Return whether the topic exists."""
        return TOPIC in self._client.metadata([TOPIC]).topics

    def prepare(self) -> None:
        """Create the topic if it does not exist; raise PipelineFailed if its settings are wrong."""
        if not self.exists():
            replicas = min(_REPLICATION_FACTOR_MAX, len(self._client.metadata([]).nodes))
            try:
                self._client.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, CONFIGS)])
            except TopicAlreadyExists:  # another run has created it: wait until it is writable
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
        """Read up to the current end, or up to `end`, an exclusive offset."""
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
        """Read available records, or the first that arrive within the timeout."""
        self._take(self._reading(), timeout_ms)
        return self.watch

    def write(self, key: bytes, value: bytes) -> int | None:
        """Add a record and wait until all in-sync replicas have it.

        Returns the offset after it; None if that is unknown.
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
            self._producer = None  # the next report must not depend on its producer id
            raise
        offset = self._delivered[-1].base_offset if self._delivered else -1
        return None if offset < 0 else offset + 1

    def close(self) -> None:
        """Close all connections."""
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
    """Describe this process."""
    this = record_of("", os.getpid())
    assert this is not None, "this process runs"
    return Place(socket.gethostname(), this.pid, this.started, pid_space())


def look(topic: RunTopic, tell: Tell = _ignore) -> tuple[RunState | None, Standing]:
    """Return the newest run, and whether it runs; do not create or write anything."""
    if not topic.exists():
        return None, Standing.ENDED
    topic.read()
    found = standing(topic, tell)
    return topic.watch.holder, found


def standing(topic: RunTopic, tell: Tell = _ignore, silence_s: float | None = None) -> Standing:
    """Return whether the pipeline runs; wait for a beat if the run is on another machine.

    UNKNOWN: no beat came for `silence_s` (default: `SILENCE_S`). `tell` takes a message about the
    wait.
    """
    deadline = time.monotonic() + (SILENCE_S if silence_s is None else silence_s)
    first = topic.watch.holder
    was_reported = False
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
        if not was_reported:
            tell(f"waiting to hear of {topic.watch.name}, last run as {holder.place}")
            was_reported = True
        topic.read_more(min(left_s * 1000, _POLL_MS))


def _is_there(run: RunState) -> bool:
    """Return whether a run's process exists; in this process, whether the run does."""
    place = run.place
    is_process = is_running(ProcessRecord("", place.pid, place.started))
    return is_process and (place.pid != os.getpid() or run.run in _HELD)


class HeldRun(Closing):
    """A run of this process that holds its pipeline: reports state, and receives requests."""

    def __init__(
        self,
        topic: RunTopic,
        on_stop: Callable[[StopRequest], object],
        tell: Tell = _ignore,
        silence_s: float | None = None,
    ) -> None:
        """Take the pipeline; raise AlreadyRuns or PipelineFailed.

        `on_stop` is called from another thread; `tell` takes progress messages.
        """
        self.failure: Exception | None = None
        """Why the run cannot continue: Displaced, or the error of an unreadable record."""
        self._topic, self._on_stop = topic, on_stop
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._beat = 0
        topic.prepare()
        self.state = self._claimed(tell, silence_s)
        _HELD.add(self.state.run)
        self._thread = threading.Thread(target=self._beats, name="pipeline's beats", daemon=True)
        self._thread.start()

    def tell(self, state: RunState, *, at_once: bool = True) -> None:
        """Report the run's newest state, at once or with the next beat.

        If a report fails now, a later beat repeats it. Raises Displaced.
        """
        self.state = state
        if not at_once:
            return
        try:
            self.confirm()
        except (ClientError, KafkaError) as failure:
            log.warning("%s: not reported yet: %s", state.name, failure)

    def confirm(self, patience_s: float = 0.0) -> None:
        """Report, and check that no other run holds the pipeline; raise Displaced.

        Raises ClientError or KafkaError if that could not be determined within `patience_s`.
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
        """Stop reporting."""
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
        """Handle what others have written; raise Displaced."""
        if not watch.is_held_by(self.state.run):
            who = "nobody known" if watch.holder is None else watch.holder.place
            raise Displaced(f"{watch.name} was taken over by another run: {who}")
        request = watch.asked_to_stop(self.state.run)
        if request is not None:
            self._on_stop(request)

    def _beats(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self.confirm()
            except (ClientError, KafkaError) as failure:
                log.warning("%s: not reported yet: %s", self.state.name, failure)
            except Exception as failure:  # noqa: BLE001  # the run's own thread raises it
                self.failure = failure
                return


def ask_to_stop(topic: RunTopic, run: str, *, is_now: bool) -> None:
    """Request that a run stop."""
    topic.write(stop_key(topic.watch.name), encode(StopRequest(run, is_now)))


def follow(topic: RunTopic, run: str, timeout_s: float) -> Standing:
    """Wait until a run ends. RUNS: it has not ended; UNKNOWN: no beat for `SILENCE_S`."""
    last_beat_s = time.monotonic()
    deadline = last_beat_s + timeout_s
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
            last, last_beat_s = holder, now
        if found is Standing.UNKNOWN and now - last_beat_s >= SILENCE_S:
            return found
        if now >= deadline:
            return Standing.RUNS


def _now_ms() -> int:
    return round(time.time() * 1000)
