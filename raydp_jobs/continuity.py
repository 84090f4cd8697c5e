"""Whether a batch is written, is to be written now, or does not go on where the sink stopped.

| the batch | the sink's state | |
|---|---|---|
| the same query and number | the same ends | written: skipped |
| | other ends | SourceMismatch: its checkpoint is not the one that was committed |
| the same query, a later number | ends where it starts | to be written |
| | ends elsewhere | SourceMismatch |
| the same query, an earlier number | | SourceMismatch: an old copy of the checkpoint |
| another query, Kafka sources | ends where it starts | to be written |
| | ends elsewhere, or read nothing of what it reads | SourceMismatch |
| another query, other sources | | SourceMismatch: their offsets say nothing of each other |
| of a query, number 0 | blank: the sink has written nothing | to be written |
| of a query, a later number | blank | StateLost: something has written those before it |
| a job | written, the same offsets | skipped |
| | written, other offsets | SourceMismatch |
| | not among the last jobs | to be written |

What this cannot see: `docs/pipelines.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.batches import (
    Batch,
    KafkaRange,
    Offsets,
    OtherRange,
    SourceMismatch,
    SourceRange,
    StateLost,
    same_cluster,
)
from raylog.raydp_jobs.marks import GroupMarks, Job, Mark
from raylog.raydp_jobs.sink_state import SinkState, WrittenBatch, WrittenJob, digest_of

_SHOWN = 3
"""Differences in a message."""
_RESET = "`reset` of the sink (docs/pipelines.md) lets any query begin"
_GO_ON = (
    "where the sink ended: by `starting` of each source in a pipeline's file, by "
    "`sink.starting_offsets()` in a program (docs/pipelines.md, Restarts)"
)
_NEW_QUERY = f"begin a new query, with an empty checkpoint, {_GO_ON}"


# -- which state it is ----------------------------------------------------------------------------


def state_of(
    stored: SinkState | None, *, is_registered: bool, marks: GroupMarks, topics: Sequence[str]
) -> SinkState:
    """The sink's state, or that which marks of version 1 tell. Raises StateLost.

    `is_registered`: whether the state topic has the sink's registration. `topics` are the sink's.
    """
    if stored is None and marks.has_state:  # marks of version 1 may be older than that state
        raise StateLost(
            "the group's offsets say that the sink has a state, and the state topic has none: was "
            f"it deleted or made anew? {_RESET}"
        )
    base = stored or SinkState()
    newer = {
        mark: offsets
        for mark, offsets in marks.first.items()
        if mark.batch_id > base.superseded.get(mark.query_id, -1)
    }
    if newer:
        return _of_first_version(base, newer, marks, topics)
    if stored is not None:
        return stored
    if is_registered:
        return base
    raise StateLost(
        "the sink's transactional id is known, and neither the state topic nor the group's offsets "
        "say what it has written: offsets of a group without members expire after "
        f"offsets.retention.minutes. {_RESET}"
    )


def _of_first_version(
    base: SinkState,
    newer: Mapping[Mark, Offsets],
    marks: GroupMarks,
    topics: Sequence[str],
) -> SinkState:
    """The state that an older build has left, on top of one that is older still."""
    mark = _newest(newer, topics)
    ends = {key: offset for key, offset in newer[mark].items() if key.topic not in topics}
    sources = (KafkaRange({}, ends),) if ends else ()
    jobs = tuple(base.jobs)
    if mark.batch_id == 0:  # so it may be a job's
        jobs += (WrittenJob(mark.query_id, digest_of(sources)),)
    return replace(
        base,
        batch=WrittenBatch(mark, sources, is_merged=True),
        jobs=jobs,
        superseded={**base.superseded, **marks.batches()},
    )


def _newest(marks: Mapping[Mark, Offsets], topics: Sequence[str]) -> Mark:
    """The mark that was committed last; raises StateLost if that cannot be told."""
    if len({mark.query_id for mark in marks}) == 1:
        return max(marks, key=lambda mark: mark.batch_id)
    for topic in topics:
        for mark, offsets in marks.items():
            if offsets.get(TopicPartition(topic, 0)) == mark.batch_id:
                return mark
    told = ", ".join(map(str, sorted(marks, key=str)))
    raise StateLost(f"the group's offsets tell of several batches, by an older build: {told}")


# -- what is to be done with a batch --------------------------------------------------------------


def is_written(state: SinkState, batch: Batch) -> bool:
    """Whether a batch or job is written; if not, it may be now.

    Raises SourceMismatch, StateLost.
    """
    mark = batch.mark
    if isinstance(mark, Job):
        return _is_job_written(state, mark, batch.sources)
    written = state.batch
    if written is None:
        if state.sequence == 0 and mark.batch_id > 0:
            raise StateLost(
                f"{mark} is not the first, and the sink has no record of any batch: it expired, or "
                f"another sink wrote those before. {_RESET}"
            )
        _check_positions(state, batch)
    elif written.mark.query_id != mark.query_id:
        _check_takeover(state, written, batch)
    elif written.mark.batch_id == mark.batch_id:
        _check_same(written, batch)
        return True
    elif written.mark.batch_id > mark.batch_id:
        raise SourceMismatch(
            f"{mark}, which ends at {_told(batch.sources)}, comes after {written.mark}, which is "
            f"committed and ended at {_told(written.sources)}: its checkpoint is an older copy. "
            f"Restore the newest one, or {_NEW_QUERY}"
        )
    else:
        _check_continues(state, written, batch)
    return False


def _is_job_written(state: SinkState, job: Job, sources: Sequence[SourceRange]) -> bool:
    digest = digest_of(sources)
    for known in state.jobs:
        if known.job_id == job.job_id:
            if known.digest != digest:
                raise SourceMismatch(
                    f"{job} is committed with other offsets than these: {_told(sources)}"
                )
            return True
    return False


def _check_same(written: WrittenBatch, batch: Batch) -> None:
    """The batch that is committed, to the last offset; raises SourceMismatch."""
    wrong: list[str] = []
    if written.is_merged:
        known, found = _merged_ends(written.sources), _merged_ends(batch.sources)
        wrong = _differences({key: known.get(key) for key in found}, found)
    else:
        for one, other in zip_longest(written.sources, batch.sources):
            wrong += _range_differences(one, other)
    if wrong:
        raise SourceMismatch(
            f"{batch.mark} is committed with other ends than these: {_few(wrong)}. Its checkpoint "
            f"is not the one it was committed with: restore that one, or {_NEW_QUERY}"
        )


def _range_differences(one: SourceRange | None, other: SourceRange | None) -> list[str]:
    """How the ends of a source differ from what was committed."""
    match one, other:
        case KafkaRange(), KafkaRange():
            _check_identity(one, other)
            keys = dict.fromkeys([*one.ends, *other.ends])
            return _differences(
                {key: one.ends.get(key) for key in keys}, {key: other.ends.get(key) for key in keys}
            )
        case OtherRange(), OtherRange():
            return [] if one.end == other.end else [f"committed {one.end}, found {other.end}"]
        case _:
            return ["the query has other sources"]


def _check_continues(state: SinkState, written: WrittenBatch, batch: Batch) -> None:
    """A later batch of the same query starts where the committed one ended."""
    wrong: list[str] = []
    if written.is_merged:
        ends = _merged_ends(written.sources)
        for source in batch.sources:
            if isinstance(source, KafkaRange):
                wrong += _start_differences({key: {end} for key, end in ends.items()}, source)
        kafka_only = all(isinstance(source, KafkaRange) for source in batch.sources)
        if not kafka_only and _batch_id(batch) != written.mark.batch_id + 1:
            wrong.append(f"expected batch {written.mark.batch_id + 1}")
    else:
        for one, other in zip_longest(written.sources, batch.sources):
            match one, other:
                case KafkaRange(), KafkaRange():
                    _check_identity(one, other)
                    known = {key: {end} for key, end in one.ends.items()}
                    wrong += _start_differences(_moved(known, state, other.cluster_id), other)
                case OtherRange(), OtherRange() if one.end != other.start:
                    wrong.append(f"committed {one.end}, found {other.start}")
                case (OtherRange(), OtherRange()) | (OtherRange(end="-"), KafkaRange()):
                    pass  # it continues, or begins
                case _:
                    wrong.append("the query has other sources")
    _refuse(batch, written.mark, wrong)


def _check_takeover(state: SinkState, written: WrittenBatch, batch: Batch) -> None:
    """The first batch of another query starts where the sink's last one ended."""
    if not batch.sources or not all(isinstance(one, KafkaRange) for one in batch.sources):
        _refuse(batch, written.mark, ["its sources have no offsets that could be compared"])
    if any(isinstance(one, OtherRange) for one in written.sources):
        _refuse(batch, written.mark, ["that one had sources without offsets to compare"])
    if not _check_positions(state, batch):
        _refuse(batch, written.mark, [f"that one ended at {_told(written.sources)}"])


def _check_positions(state: SinkState, batch: Batch) -> bool:
    """Kafka sources start where the sink has them; returns whether it has any of them."""
    wrong: list[str] = []
    is_known = False
    for number, source in enumerate(batch.sources):
        if isinstance(source, OtherRange):
            continue
        known = _known_ends(state, number, source)
        is_known |= any(key in known for key in source.ends)
        wrong += _start_differences(known, source)
    _refuse(batch, state.batch.mark if state.batch is not None else None, wrong)
    return is_known


def _known_ends(
    state: SinkState, number: int, source: KafkaRange
) -> dict[TopicPartition, set[int]]:
    """Where a source of another query is written up to.

    The source that was in its place, if that read the same topics, or else all that there are:
    a partition that several sources read up to different ends has no one end.
    """
    written = state.batch.sources if state.batch is not None else ()
    topics = _topics(source.ends)
    found = [
        (place, one)
        for place, one in enumerate(written)
        if isinstance(one, KafkaRange) and not _topics(one.ends).isdisjoint(topics)
    ]
    fitting = [pair for pair in found if same_cluster(pair[1].cluster_id, source.cluster_id)]
    in_place = [pair for pair in fitting if pair[0] == number and _topics(pair[1].ends) == topics]
    known: dict[TopicPartition, set[int]] = {}
    for _, one in in_place or fitting or found:
        _check_identity(one, source)
        for key, end in one.ends.items():
            known.setdefault(key, set()).add(end)
    return _moved(known, state, source.cluster_id)


def _moved(
    known: dict[TopicPartition, set[int]], state: SinkState, cluster_id: str
) -> dict[TopicPartition, set[int]]:
    """The same with what is known of partitions beside the batch."""
    beside = {
        key: {end}
        for (of_cluster, key), end in state.positions.items()
        if same_cluster(of_cluster, cluster_id)
    }
    return known | beside


def _start_differences(known: Mapping[TopicPartition, set[int]], source: KafkaRange) -> list[str]:
    """Where a source starts elsewhere than at its known end."""
    return [
        f"{key} was committed up to {' and '.join(map(str, sorted(known[key])))}, "
        f"it begins at {source.starts.get(key, 'an unknown offset')}"
        for key in sorted(source.ends)
        if key in known and known[key] != {source.starts.get(key)}
    ]


def _check_identity(one: KafkaRange, other: KafkaRange) -> None:
    """The same cluster and topics, as far as that is known; raises SourceMismatch."""
    if not same_cluster(one.cluster_id, other.cluster_id):
        raise SourceMismatch(
            f"{', '.join(sorted(_topics(other.ends)))}: the committed offsets are of cluster "
            f"{one.cluster_id}, this batch reads cluster {other.cluster_id}. {_RESET}"
        )
    for topic, topic_id in one.topic_ids.items():
        found = other.topic_ids.get(topic, topic_id)
        if found != topic_id:
            raise SourceMismatch(
                f"topic {topic} was deleted and made anew: the committed offsets are of id "
                f"{topic_id}, this batch reads id {found}. {_RESET}"
            )


def _refuse(batch: Batch, after: Mark | None, wrong: list[str]) -> None:
    """Raise SourceMismatch if anything is wrong."""
    if wrong:
        told = "the sink's last transaction" if after is None else f"{after}, the sink's last one"
        raise SourceMismatch(
            f"{batch.mark} does not begin where {told}, ended: {_few(wrong)}. A new query begins "
            f"{_GO_ON}; {_RESET}"
        )


# -- in words -------------------------------------------------------------------------------------


def _batch_id(batch: Batch) -> int:
    assert isinstance(batch.mark, Mark), "jobs are told apart before"
    return batch.mark.batch_id


def _topics(offsets: Offsets) -> set[str]:
    return {key.topic for key in offsets}


def _merged_ends(sources: Iterable[SourceRange]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for source in sources:
        if isinstance(source, KafkaRange):
            found |= source.ends
    return found


def _differences(
    committed: Mapping[TopicPartition, int | None], found: Mapping[TopicPartition, int | None]
) -> list[str]:
    return [
        f"{key} committed up to {committed[key]}, found {found[key]}"
        for key in sorted(found)
        if committed[key] != found[key]
    ]


def _few(differences: list[str]) -> str:
    more = len(differences) - _SHOWN
    return "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _told(sources: Iterable[SourceRange]) -> str:
    """Where sources end."""
    ends: list[str] = []
    for source in sources:
        if isinstance(source, OtherRange):
            ends.append(source.end)
        else:
            ends += [f"{end} of {key}" for key, end in sorted(source.ends.items())]
    more = len(ends) - _SHOWN
    return ", ".join(ends[:_SHOWN]) + (f" and {more} more" if more > 0 else "") or "no offsets"
