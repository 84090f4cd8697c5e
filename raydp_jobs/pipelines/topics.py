"""A pipeline's topics on their clusters: whether they exist, and how far they are read.

Sources and tables may be on clusters other than the pipeline's own. If a source's `kafka` settings
require encryption or credentials, Spark can read it, but this module cannot look it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from raylog.client import (
    LATEST,
    BlockingClient,
    ClientError,
    ClientSettings,
    TopicPartition,
    parse_bootstrap,
)
from raylog.raydp_jobs.checkpoints import batch_source
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.manifests import newest_landed
from raylog.raydp_jobs.pipelines.register import TOPIC
from raylog.raydp_jobs.pipelines.spec import ParquetSink, PipelineSpec, TopicSource, TopicTable
from raylog.sink.batches import UNKNOWN_CLUSTER, same_cluster
from raylog.sink.lookup import look_up_state
from raylog.sink.state import Position, SinkState
from raylog.sink.state_topic import STATE_TOPIC
from raylog.wire.errors import KafkaError, UnknownTopicOrPartition


def can_be_asked(of: TopicSource | TopicTable) -> bool:
    """Return whether its cluster accepts clients without encryption and credentials."""
    return of.kafka.get("security.protocol", "PLAINTEXT") == "PLAINTEXT"


# -- checks before a run --------------------------------------------------------------------------


def check_topics(bootstrap: str, spec: PipelineSpec) -> None:
    """Raise PipelineFailed for a topic that does not exist, or is both read and written to."""
    with BlockingClient(bootstrap) as client:
        for field, topic in spec.written().items():
            _check_topic(client, field, topic, bootstrap)
        own = client.metadata([]).cluster_id
    for field, of in _read_fields(spec):
        if not can_be_asked(of):
            continue
        with BlockingClient(of.bootstrap or bootstrap) as client:
            for topic in [of.topic] if isinstance(of, TopicTable) else of.topics:
                _check_topic(client, field, topic, of.bootstrap or bootstrap)
            is_own = of.bootstrap is None or client.metadata([]).cluster_id == own
        if is_own and isinstance(of, TopicSource):
            _refuse_circle(spec, field, of)


def _read_fields(spec: PipelineSpec) -> Iterator[tuple[str, TopicSource | TopicTable]]:
    """Yield all sources and tables that read topics, with their fields."""
    for name, source in spec.sources.items():
        yield f"sources.{name}", source
    for name, table in spec.tables.items():
        if isinstance(table, TopicTable):
            yield f"tables.{name}", table


def _check_topic(client: BlockingClient, field: str, topic: str, bootstrap: str) -> None:
    try:
        client.describe_topic(topic)
    except UnknownTopicOrPartition as failure:
        raise PipelineFailed(
            f"{field}: there is no topic {topic} on {bootstrap}: create it with "
            f"`raylog topics create {topic} --bootstrap {bootstrap}`"
        ) from failure


def _refuse_circle(spec: PipelineSpec, field: str, source: TopicSource) -> None:
    """Raise PipelineFailed for a source that reads what the pipeline writes."""
    for written in [*spec.written_topics(), STATE_TOPIC, TOPIC]:
        if source.reads(written):
            asked_for = "topics" if source.pattern is None else f"pattern: {source.pattern!r}"
            raise PipelineFailed(
                f"{field}.{asked_for}: includes {written}, which the pipeline writes to"
            )


# -- progress -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far a source's topic is read."""

    source: str
    topic: str
    lag: int | None
    """Records and markers not in the output yet; None: nothing is committed, or unknown."""


def lags(bootstrap: str, spec: PipelineSpec, timeout_ms: int) -> list[TopicLag]:
    """Return lags by source and topic, based on what is committed with the output.

    Lags of a source are None if its own cluster cannot be looked up. Raises ClientError or
    KafkaError.
    """
    written = _written(bootstrap, spec, timeout_ms)
    found: list[TopicLag] = []
    for name, source in spec.sources.items():
        if not can_be_asked(source):
            found += _unknown(name, source)
            continue
        try:
            found += _lags_of(source.bootstrap or bootstrap, name, source, written, timeout_ms)
        except (ClientError, KafkaError):
            if source.bootstrap is None:
                raise
            found += _unknown(name, source)
    return found


def _unknown(name: str, source: TopicSource) -> list[TopicLag]:
    return [TopicLag(name, topic, None) for topic in source.topics or [str(source.pattern)]]


def _lags_of(
    address: str,
    name: str,
    source: TopicSource,
    written: Mapping[Position, int],
    timeout_ms: int,
) -> list[TopicLag]:
    """Return the lags of one source; of a pattern's topics, those that exist now."""
    with BlockingClient(address, _settings(address, timeout_ms)) as client:
        view = client.metadata(source.topics or None)
        topics = source.topics or sorted(
            topic.name
            for topic in view.topics.values()
            if not topic.is_internal and source.reads(topic.name)
        )
        keys = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in view.topic(topic).partitions
        ]
        ends = client.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
    cluster_id = view.cluster_id or UNKNOWN_CLUSTER
    committed = {key: at for (of, key), at in written.items() if same_cluster(of, cluster_id)}
    return [
        TopicLag(name, topic, _lag(topic, {key: at.offset for key, at in ends.items()}, committed))
        for topic in topics
    ]


def _lag(
    topic: str, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> int | None:
    known = [key for key in ends if key.topic == topic and key in committed]
    return sum(max(0, ends[key] - committed[key]) for key in known) if known else None


def _written(bootstrap: str, spec: PipelineSpec, timeout_ms: int) -> Mapping[Position, int]:
    """Return how far each partition is written; for topics, according to the sink's state.

    Rows that land in a folder without dead letters have no transaction: their manifests count or,
    without manifests, Spark's commits.
    """
    topics = spec.written_topics()
    if topics:
        state = look_up_state(_settings(bootstrap, timeout_ms), spec.name, topics)
        return {} if state is None else state.ends()
    assert isinstance(spec.sink, ParquetSink), "what does not go to topics lands"
    newest = newest_landed(spec.sink.path)
    if newest is not None:
        return SinkState(batch=newest).ends()
    return {(UNKNOWN_CLUSTER, key): end for key, end in done(spec.checkpoint).items()}


def done(checkpoint: Path) -> Mapping[TopicPartition, int]:
    """Return where the last batch ended that Spark has committed."""

    def read(name: str) -> str | None:
        path = checkpoint / name
        return path.read_text() if path.exists() else None

    numbers = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    return batch_source(read, max(numbers)).ends if numbers else {}


def _settings(address: str, timeout_ms: int) -> ClientSettings:
    return ClientSettings(parse_bootstrap(address), operation_timeout_ms=timeout_ms)
