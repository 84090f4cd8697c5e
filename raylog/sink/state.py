r"""A sink's state: its last batch, its last jobs, and how far each source is written.

The state is a record in a compacted topic, `__raylog_sinks` by default, written in each transaction
of the sink. So it exists if and only if the rows do, does not expire, and has room for any number
of partitions.

| part of a record | contents |
|---|---|
| key | JSON, `["<sink id>", 0]`; further parts of a long state have 1, 2, … |
| header `version` | format version: 2 (version 1 was a mark in the group's offsets, see `marks`) |
| header `sequence` | number of the sink's transaction; the same in all parts |
| header `parts` | number of parts |
| value | the state as JSON in UTF-8, or this part of its bytes |

A record with the key `["<sink id>", "registered"]` and the header `version` is written before a
sink's first transaction, outside of any.

```json
{"batch": {"query": "5f2a", "batch": 50, "sources": [
   {"cluster": "MkU3", "topics": {"in": {"id": "b2c1", "starts": {"0": 800}, "ends": {"0": 900}}}},
   {"start": "{\"logOffset\":3}", "end": "{\"logOffset\":4}"}]},
 "positions": [{"cluster": "MkU3", "topics": {"no-longer-read": {"0": 40}}}],
 "jobs": [["2026-11-21", "0f343b0931126a20"]],
 "superseded": {"5f2a": 12}}
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raylog.client.cluster import TopicPartition
from raylog.sink.batches import (
    Batch,
    BatchFailed,
    KafkaRange,
    Offsets,
    OtherRange,
    SourceRange,
    same_cluster,
)
from raylog.sink.marks import Job, Mark

VERSION = 2
JOBS_MAX = 1_000
"""How many jobs are remembered."""
_DIGEST_CHARS = 16

Position = tuple[str, TopicPartition]
"""A cluster's id, which may be unknown, and a partition."""


class StateUnreadable(BatchFailed):
    """A record of the state topic that this build cannot read."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The newest committed micro-batch."""

    mark: Mark
    sources: Sequence[SourceRange]
    is_merged: bool = False
    """Whether it comes from a mark of version 1: one merged range for all Kafka sources, no
    others."""


@dataclass(frozen=True, slots=True)
class WrittenJob:
    """A committed job."""

    job_id: str
    digest: str
    """Digest of the offsets committed with it; "": there were none."""


@dataclass(frozen=True, slots=True)
class SinkState:
    """What the sink's transactions have written so far."""

    sequence: int = 0
    """The number of transactions so far."""
    batch: WrittenBatch | None = None
    positions: Mapping[Position, int] = field(default_factory=dict)
    """Ends of partitions that `batch` does not have, or that a later job has moved."""
    jobs: Sequence[WrittenJob] = ()
    """The last `JOBS_MAX` jobs, the newest last."""
    superseded: Mapping[str, int] = field(default_factory=dict)
    """For each query, the newest batch with a mark of version 1 that this state includes."""

    def ends(self) -> dict[Position, int]:
        """Return each partition's end; if two sources read it, the smaller one."""
        found: dict[Position, int] = {}
        for source in self.batch.sources if self.batch is not None else ():
            if isinstance(source, KafkaRange):
                for key, end in source.ends.items():
                    position = (source.cluster_id, key)
                    found[position] = min(end, found.get(position, end))
        return found | dict(self.positions)

    def after(self, batch: Batch) -> SinkState:
        """Return the state after a batch or job is written."""
        if isinstance(batch.mark, Job):
            return self._after_job(batch.mark, batch.sources)
        now = [source for source in batch.sources if isinstance(source, KafkaRange)]
        left = {
            position: end
            for position, end in self.ends().items()
            if not any(_has(source, position) for source in now)
        }
        written = WrittenBatch(batch.mark, tuple(batch.sources))
        return replace(self, sequence=self.sequence + 1, batch=written, positions=left)

    def _after_job(self, job: Job, sources: Sequence[SourceRange]) -> SinkState:
        moved = {
            (source.cluster_id, key): end
            for source in sources
            if isinstance(source, KafkaRange)
            for key, end in source.ends.items()
        }
        jobs = (*self.jobs, WrittenJob(job.job_id, digest_of(sources)))[-JOBS_MAX:]
        return replace(
            self, sequence=self.sequence + 1, positions={**self.positions, **moved}, jobs=jobs
        )


def _has(source: KafkaRange, position: Position) -> bool:
    cluster_id, key = position
    return key in source.ends and same_cluster(source.cluster_id, cluster_id)


def digest_of(sources: Iterable[SourceRange]) -> str:
    """Return a short digest of where sources end; "" if there are none."""
    ends = sorted(
        (key.topic, key.partition, end)
        for source in sources
        if isinstance(source, KafkaRange)
        for key, end in source.ends.items()
    )
    if not ends:
        return ""
    return hashlib.sha256(json.dumps(ends).encode()).hexdigest()[:_DIGEST_CHARS]


# -- as JSON --------------------------------------------------------------------------------------


def encode_state(state: SinkState) -> bytes:
    """Encode the state without its sequence."""
    document: dict[str, Any] = {}
    if state.batch is not None:
        document["batch"] = {
            "query": state.batch.mark.query_id,
            "batch": state.batch.mark.batch_id,
            "sources": [_source_document(source) for source in state.batch.sources],
        }
        if state.batch.is_merged:
            document["batch"]["merged"] = True
    if state.positions:
        document["positions"] = _positions_document(state.positions)
    if state.jobs:
        document["jobs"] = [[job.job_id, job.digest] for job in state.jobs]
    if state.superseded:
        document["superseded"] = dict(state.superseded)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode_state(data: bytes, sequence: int, where: str) -> SinkState:
    """Decode a record's value; `where` is for error messages. Raises StateUnreadable."""
    try:
        document = json.loads(data)
        return SinkState(
            sequence,
            _written_batch(document.get("batch")),
            _positions(document.get("positions", [])),
            tuple(WrittenJob(str(name), str(digest)) for name, digest in document.get("jobs", [])),
            {str(query): int(batch) for query, batch in document.get("superseded", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateUnreadable(f"{where} is damaged: {type(error).__name__}: {error}") from error


def _source_document(source: SourceRange) -> dict[str, Any]:
    if isinstance(source, OtherRange):
        return {"start": source.start, "end": source.end}
    topics: dict[str, Any] = {}
    for name, offsets in (("starts", source.starts), ("ends", source.ends)):
        for topic, partitions in offsets_by_topic(offsets).items():
            topics.setdefault(topic, {})[name] = partitions
    for topic, topic_id in source.topic_ids.items():
        topics.setdefault(topic, {})["id"] = topic_id
    return {"cluster": source.cluster_id, "topics": topics}


def _source(document: Any) -> SourceRange:
    if "topics" not in document:
        return OtherRange(document["start"], str(document["end"]))
    topics = document["topics"]
    return KafkaRange(
        _offsets((topic, one.get("starts", {})) for topic, one in topics.items()),
        _offsets((topic, one.get("ends", {})) for topic, one in topics.items()),
        str(document["cluster"]),
        {topic: str(one["id"]) for topic, one in topics.items() if "id" in one},
    )


def _written_batch(document: Any) -> WrittenBatch | None:
    if document is None:
        return None
    mark = Mark(str(document["query"]), int(document["batch"]))
    sources = tuple(_source(source) for source in document["sources"])
    return WrittenBatch(mark, sources, bool(document.get("merged", False)))


def _positions_document(positions: Mapping[Position, int]) -> list[dict[str, Any]]:
    by_cluster: dict[str, dict[TopicPartition, int]] = {}
    for (cluster_id, key), end in positions.items():
        by_cluster.setdefault(cluster_id, {})[key] = end
    return [
        {"cluster": cluster_id, "topics": offsets_by_topic(ends)}
        for cluster_id, ends in by_cluster.items()
    ]


def _positions(document: Any) -> dict[Position, int]:
    return {
        (str(of_cluster["cluster"]), key): end
        for of_cluster in document
        for key, end in _offsets(of_cluster["topics"].items()).items()
    }


def offsets_by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Group offsets by topic and partition, as in JSON."""
    found: dict[str, dict[str, int]] = {}
    for key, offset in offsets.items():
        found.setdefault(key.topic, {})[str(key.partition)] = offset
    return found


def _offsets(topics: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics
        for partition, offset in partitions.items()
    }
