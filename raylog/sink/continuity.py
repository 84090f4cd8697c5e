"""Whether a batch is already written, may be written now, or does not match the sink's state.

| batch | the sink's state | result |
|---|---|---|
| same query and number | same ends | written: skip |
| | other ends | SourceMismatch: its checkpoint is not the one that was committed |
| same query, later number | ends where it starts | write |
| | ends elsewhere | SourceMismatch |
| same query, earlier number | | SourceMismatch: an old copy of the checkpoint |
| another query, Kafka sources | ends where it starts | write |
| | ends elsewhere, or has none of its partitions | SourceMismatch |
| another query, other sources | | SourceMismatch: their offsets cannot be compared |
| of a query, number 0 | empty: the sink has written nothing | write |
| of a query, later number | empty | StateLost: earlier batches were written somewhere |
| job | written, same offsets | skip |
| | written, other offsets | SourceMismatch |
| | not among the last jobs | write |

For what these checks cannot detect, see `docs/pipelines.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from raylog.client.cluster import TopicPartition
from raylog.sink.batches import (
    Batch,
    KafkaRange,
    Offsets,
    OtherRange,
    SourceMismatch,
    SourceRange,
    StateLost,
    same_cluster,
)
from raylog.sink.marks import GroupMarks, Job, Mark
from raylog.sink.state import SinkState, WrittenBatch, WrittenJob, digest_of

_SHOWN = 3
"""How many differences a message lists."""
_RESET = "`reset` of the sink (docs/pipelines.md) lets any query begin"
_GO_ON = (
    "where the sink ended: by `starting` of each source in a pipeline's file, by "
    "`sink.starting_offsets()` in a program (docs/pipelines.md, Restarts)"
)
_NEW_QUERY = f"begin a new query, with an empty checkpoint, {_GO_ON}"


# -- deriving the state ---------------------------------------------------------------------------


def state_of(
    stored: SinkState | None, *, is_registered: bool, marks: GroupMarks, topics: Sequence[str]
) -> SinkState:
    """Return the sink's state, or one derived from marks of version 1. Raises StateLost.

    `is_registered`: whether the state topic has the sink's registration. `topics` are the sink's.
    """
    if stored is None and marks.has_state:  # any marks of version 1 may be older than that state
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
    """Add the batch that an older build has written to a state, which may be empty."""
    mark = _newest(newer, topics)
    ends = {key: offset for key, offset in newer[mark].items() if key.topic not in topics}
    sources = (KafkaRange({}, ends),) if ends else ()
    jobs = tuple(base.jobs)
    if mark.batch_id == 0:  # it may be a job's mark
        jobs += (WrittenJob(mark.query_id, digest_of(sources)),)
    return replace(
        base,
        batch=WrittenBatch(mark, sources, is_merged=True),
        jobs=jobs,
        superseded={**base.superseded, **marks.batches()},
    )


def _newest(marks: Mapping[Mark, Offsets], topics: Sequence[str]) -> Mark:
    """Return the mark that was committed last; raise StateLost if that is ambiguous."""
    if len({mark.query_id for mark in marks}) == 1:
        return max(marks, key=lambda mark: mark.batch_id)
    for topic in topics:
        for mark, offsets in marks.items():
            if offsets.get(TopicPartition(topic, 0)) == mark.batch_id:
                return mark
    marks_text = ", ".join(map(str, sorted(marks, key=str)))
    raise StateLost(f"the group's offsets tell of several batches, by an older build: {marks_text}")


# -- checking a batch -----------------------------------------------------------------------------


def is_written(state: SinkState, batch: Batch) -> bool:
    """Return whether a batch or job is written; if not, it may be written now.

    Raises SourceMismatch or StateLost.
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
            f"{mark}, which ends at {_ends(batch.sources)}, comes after {written.mark}, which is "
            f"committed and ended at {_ends(written.sources)}: its checkpoint is an older copy. "
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
                    f"{job} is committed with other offsets than these: {_ends(sources)}"
                )
            return True
    return False


def _check_same(written: WrittenBatch, batch: Batch) -> None:
    """Check that a batch has exactly the ends that were committed; raise SourceMismatch."""
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
    """Describe how a source's ends differ from those committed."""
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
    """Check that a later batch of the same query starts where the committed one ended."""
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
                    pass  # it continues or begins
                case _:
                    wrong.append("the query has other sources")
    _refuse(batch, written.mark, wrong)


def _check_takeover(state: SinkState, written: WrittenBatch, batch: Batch) -> None:
    """Check that the first batch of another query starts where the sink's last one ended."""
    if not batch.sources or not all(isinstance(one, KafkaRange) for one in batch.sources):
        _refuse(batch, written.mark, ["its sources have no offsets that could be compared"])
    if any(isinstance(one, OtherRange) for one in written.sources):
        _refuse(batch, written.mark, ["that one had sources without offsets to compare"])
    if not _check_positions(state, batch):
        _refuse(batch, written.mark, [f"that one ended at {_ends(written.sources)}"])


def _check_positions(state: SinkState, batch: Batch) -> bool:
    """Check that Kafka sources start at the sink's ends; return whether it has any of them."""
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
    """Return the committed ends of the partitions of another query's source.

    They come from the source in the same place, if it read the same topics; otherwise from all
    sources that read them. Then a partition that several sources read to different ends has several
    ends.
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
    """Override ends with those in `positions`."""
    beside = {
        key: {end}
        for (of_cluster, key), end in state.positions.items()
        if same_cluster(of_cluster, cluster_id)
    }
    return known | beside


def _start_differences(known: Mapping[TopicPartition, set[int]], source: KafkaRange) -> list[str]:
    """Describe where a source does not start at its committed end."""
    return [
        f"{key} was committed up to {' and '.join(map(str, sorted(known[key])))}, "
        f"it begins at {source.starts.get(key, 'an unknown offset')}"
        for key in sorted(source.ends)
        if key in known and known[key] != {source.starts.get(key)}
    ]


def _check_identity(one: KafkaRange, other: KafkaRange) -> None:
    """Check for the same cluster and topic ids, as far as known; raise SourceMismatch."""
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
        origin = "the sink's last transaction" if after is None else f"{after}, the sink's last one"
        raise SourceMismatch(
            f"{batch.mark} does not begin where {origin}, ended: {_few(wrong)}. A new query begins "
            f"{_GO_ON}; {_RESET}"
        )


# -- messages -------------------------------------------------------------------------------------


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


def _ends(sources: Iterable[SourceRange]) -> str:
    """Describe where sources end."""
    ends: list[str] = []
    for source in sources:
        if isinstance(source, OtherRange):
            ends.append(source.end)
        else:
            ends += [f"{end} of {key}" for key, end in sorted(source.ends.items())]
    more = len(ends) - _SHOWN
    return ", ".join(ends[:_SHOWN]) + (f" and {more} more" if more > 0 else "") or "no offsets"
