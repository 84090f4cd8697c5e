"""Which state a sink has, and what that means for a batch: the table of `continuity`."""

from collections.abc import Sequence

import pytest

from raylog.client.cluster import TopicPartition
from raylog.sink.batches import (
    Batch,
    KafkaRange,
    OtherRange,
    SourceMismatch,
    SourceRange,
    StateLost,
)
from raylog.sink.continuity import is_written, state_of
from raylog.sink.marks import GroupMarks, Job, Mark
from raylog.sink.state import SinkState, WrittenBatch, WrittenJob

OUT = [TopicPartition("b", 0), TopicPartition("a", 0)]
TOPICS = ["b", "a"]
IN, IN_1, CLICKS = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("clicks", 0)
NOTHING = GroupMarks()


def kafka(
    start: int, end: int, key: TopicPartition = IN, cluster: str = "", topic_id: str = ""
) -> KafkaRange:
    ids = {key.topic: topic_id} if topic_id else {}
    return KafkaRange({key: start}, {key: end}, cluster, ids)


def other(start: str | None, end: str) -> OtherRange:
    return OtherRange(start, end)


def batch(batch_id: int, *sources: SourceRange, query: str = "q") -> Batch:
    return Batch(Mark(query, batch_id), OUT, sources)


def after(batch_id: int, *sources: SourceRange, query: str = "q") -> SinkState:
    return SinkState(9, WrittenBatch(Mark(query, batch_id), sources))


# -- a batch --------------------------------------------------------------------------------------


def test_the_first_batch_of_a_blank_sink_is_written_now() -> None:
    assert not is_written(SinkState(), batch(0, kafka(0, 10)))


def test_a_later_batch_of_a_blank_sink_was_written_before() -> None:
    """Marks of an older build expire after offsets.retention.minutes."""
    with pytest.raises(StateLost, match="batch 5 of query 'q' is not the first"):
        is_written(SinkState(), batch(5, kafka(50, 60)))


def test_any_batch_may_follow_a_reset() -> None:
    assert not is_written(SinkState(4), batch(5, kafka(50, 60)))
    at_50 = SinkState(4, positions={("", IN): 50})
    assert not is_written(at_50, batch(5, kafka(50, 60)))
    with pytest.raises(SourceMismatch, match="in-0 was committed up to 50, it begins at 40"):
        is_written(at_50, batch(5, kafka(40, 60)))


@pytest.mark.parametrize(
    ("committed", "again"),
    [
        ([kafka(800, 900)], [kafka(800, 900)]),
        ([kafka(800, 900)], [kafka(850, 900)]),
        ([kafka(800, 900, cluster="c1")], [kafka(800, 900)]),
        ([other("1", "2"), kafka(0, 5)], [other("1", "2"), kafka(0, 5)]),
        ([], []),
    ],
    ids=["the same", "another start", "cluster unknown now", "several sources", "no offsets"],
)
def test_the_same_batch_is_skipped_by_its_ends(
    committed: list[SourceRange], again: list[SourceRange]
) -> None:
    assert is_written(after(50, *committed), batch(50, *again))


@pytest.mark.parametrize(
    ("committed", "again", "says"),
    [
        ([kafka(800, 900)], [kafka(800, 5_000)], "committed up to 900, found 5000"),
        ([kafka(800, 900)], [kafka(0, 9, CLICKS)], "clicks-0 committed up to None, found 9"),
        ([other("1", "2")], [other("1", "7")], "committed 2, found 7"),
        ([kafka(8, 9)], [other("8", "9")], "other sources"),
        ([kafka(8, 9)], [kafka(8, 9), other("1", "2")], "other sources"),
        ([kafka(8, 9, cluster="c1")], [kafka(8, 9, cluster="c2")], "of cluster c1.*reads cluster"),
        ([kafka(8, 9, topic_id="1")], [kafka(8, 9, topic_id="2")], "deleted and made anew"),
    ],
    ids=["widened", "topic", "other source", "kind", "one more", "cluster", "topic made anew"],
)
def test_the_same_number_with_other_ends_is_refused(
    committed: list[SourceRange], again: list[SourceRange], says: str
) -> None:
    with pytest.raises(SourceMismatch, match=says):
        is_written(after(50, *committed), batch(50, *again))


@pytest.mark.parametrize("batch_id", [41, 42, 49])
def test_an_earlier_batch_comes_of_an_old_copy_of_the_checkpoint(batch_id: int) -> None:
    """Its rows may be other ones than were written under that number."""
    state = after(50, kafka(850, 900))
    with pytest.raises(SourceMismatch, match=r"ends at 2000 of in-0.*batch 50.*ended at 900"):
        is_written(state, batch(batch_id, kafka(800, 2_000)))


@pytest.mark.parametrize("batch_id", [51, 52])
def test_a_later_batch_begins_where_the_committed_one_ended(batch_id: int) -> None:
    state = after(50, kafka(800, 900), other("1", "2"))
    assert not is_written(state, batch(batch_id, kafka(900, 950), other("2", "3")))


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ([kafka(850, 950), other("2", "3")], "up to 900, it begins at 850"),
        ([KafkaRange({}, {IN: 950}), other("2", "3")], "it begins at an unknown offset"),
        ([kafka(900, 950), other("1", "3")], "committed 2, found 1"),
        ([kafka(900, 950)], "other sources"),
        ([other("2", "3"), kafka(900, 950)], "other sources"),
    ],
)
def test_a_later_batch_that_begins_elsewhere_is_refused(
    sources: list[SourceRange], says: str
) -> None:
    with pytest.raises(SourceMismatch, match=says):
        is_written(after(50, kafka(800, 900), other("1", "2")), batch(51, *sources))


def test_new_partitions_begin_anywhere_and_a_source_may_have_had_no_offset_yet() -> None:
    state = after(50, kafka(800, 900), other("-", "-"))
    grown = KafkaRange({IN: 900, IN_1: 7}, {IN: 901, IN_1: 9})
    assert not is_written(state, batch(51, grown, kafka(0, 3, CLICKS)))


def test_one_topic_read_twice_is_two_sources() -> None:
    state = after(50, kafka(800, 900), kafka(100, 200))
    assert not is_written(state, batch(51, kafka(900, 950), kafka(200, 300)))
    with pytest.raises(SourceMismatch, match="up to 200, it begins at 900"):
        is_written(state, batch(51, kafka(900, 950), kafka(900, 950)))


def test_a_job_that_moved_a_sources_offsets_is_heeded() -> None:
    state = after(50, kafka(800, 900)).after(Batch(Job("j"), OUT, [kafka(0, 920)]))
    with pytest.raises(SourceMismatch, match="up to 920, it begins at 900"):
        is_written(state, batch(51, kafka(900, 950)))
    assert not is_written(state, batch(51, kafka(920, 950)))


# -- another query --------------------------------------------------------------------------------


def test_another_query_goes_on_where_the_sink_stopped() -> None:
    state = after(9, kafka(0, 20, cluster="c1"))
    assert not is_written(state, batch(0, kafka(20, 30, cluster="c1"), query="p"))
    assert not is_written(state, batch(0, kafka(20, 30), query="p"))


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ([kafka(0, 30)], "up to 20, it begins at 0"),
        ([KafkaRange({}, {IN: 30})], "an unknown offset"),
        ([kafka(0, 30, CLICKS)], "that one ended at 20 of in-0"),
        ([other(None, "3")], "no offsets that could be compared"),
        ([kafka(20, 30), other(None, "3")], "no offsets that could be compared"),
        ([], "no offsets that could be compared"),
        ([kafka(20, 30, cluster="c2")], "of cluster c1, this batch reads cluster c2"),
    ],
    ids=["elsewhere", "unknown", "other topic", "other kind", "one more", "none", "other cluster"],
)
def test_another_query_that_begins_elsewhere_is_refused(
    sources: list[SourceRange], says: str
) -> None:
    with pytest.raises(SourceMismatch, match=says):
        is_written(after(9, kafka(0, 20, cluster="c1")), batch(0, *sources, query="p"))


def test_after_a_query_without_kafka_no_other_one_goes_on() -> None:
    with pytest.raises(SourceMismatch, match="without offsets to compare"):
        is_written(after(9, other("1", "2")), batch(0, kafka(20, 30), query="p"))


def test_sources_of_one_name_on_two_clusters_are_distinguished() -> None:
    """Whatever their order in the new query."""
    state = after(9, kafka(0, 20, cluster="c1"), kafka(0, 500, cluster="c2"))
    both = [kafka(500, 510, cluster="c2"), kafka(20, 30, cluster="c1")]
    assert not is_written(state, batch(0, *both, query="p"))
    assert not is_written(state, batch(0, *reversed(both), query="p"))
    wrong = [kafka(500, 510, cluster="c1"), kafka(20, 30, cluster="c2")]
    with pytest.raises(SourceMismatch, match="up to 20, it begins at 500"):
        is_written(state, batch(0, *wrong, query="p"))


def test_one_name_on_unknown_clusters_is_compared_place_by_place() -> None:
    state = after(9, kafka(0, 20), kafka(0, 500))
    assert not is_written(state, batch(0, kafka(20, 30), kafka(500, 510), query="p"))
    with pytest.raises(SourceMismatch, match="it begins at 20"):
        is_written(state, batch(0, kafka(20, 30), kafka(20, 30), query="p"))
    grown = KafkaRange({IN: 20, CLICKS: 0}, {IN: 30, CLICKS: 3})
    with pytest.raises(SourceMismatch, match="up to 20 and 500, it begins at 20"):
        is_written(state, batch(0, grown, query="p"))


# -- a job ----------------------------------------------------------------------------------------


def test_a_job_is_written_once_though_others_came_since() -> None:
    state = SinkState()
    jobs = [Batch(Job(str(n)), OUT, [kafka(0, n)] if n else []) for n in range(3)]
    for job in jobs:
        assert not is_written(state, job)
        state = state.after(job)
    assert all(is_written(state, job) for job in jobs)
    with pytest.raises(SourceMismatch, match="job '2' is committed with other offsets"):
        is_written(state, Batch(Job("2"), OUT, [kafka(0, 7)]))


# -- which state it is ----------------------------------------------------------------------------

V1 = {OUT[0]: 4, IN: 30, IN_1: 5}
"""The group's offsets after batch 4 of a build without a state topic; `b` came first."""


def found(
    stored: SinkState | None = None,
    marks: GroupMarks = NOTHING,
    *,
    is_registered: bool = False,
    topics: Sequence[str] = TOPICS,
) -> SinkState:
    return state_of(stored, is_registered=is_registered, marks=marks, topics=topics)


def test_a_stored_state_is_the_state() -> None:
    state = after(4, kafka(0, 30))
    assert found(state) == found(state, GroupMarks(has_state=True)) == state


def test_a_registered_sink_without_a_state_is_blank() -> None:
    assert found(is_registered=True) == SinkState()


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_state_that_the_group_knows_of_is_lost(is_registered: bool) -> None:
    old = {Mark("q", 4): V1}  # left where another partition carries the mark since
    for first in ({}, old):
        with pytest.raises(StateLost, match="the state topic has none"):
            found(marks=GroupMarks(first, has_state=True), is_registered=is_registered)


def test_a_known_sink_without_a_state_is_refused() -> None:
    """The coordinator knows its transactional id: it may have written, and its mark expired."""
    with pytest.raises(StateLost, match="neither the state topic nor the group's offsets"):
        found()


@pytest.mark.parametrize("topics", [["b", "a"], ["a", "b"]])
def test_a_mark_of_version_1_is_gone_on_from_whatever_the_order_of_topics(
    topics: list[str],
) -> None:
    state = found(marks=GroupMarks({Mark("q", 4): V1}), topics=topics)
    ends = {IN: 30, IN_1: 5}
    again = KafkaRange({IN: 20, IN_1: 5}, ends, "c1")
    assert is_written(state, batch(4, again))
    following = batch(5, KafkaRange(ends, {IN: 40, IN_1: 5}, "c1"))
    assert not is_written(state, following)
    with pytest.raises(SourceMismatch, match="committed up to 30, found 35"):
        is_written(state, batch(4, KafkaRange({IN: 20}, {IN: 35})))
    with pytest.raises(SourceMismatch, match="up to 30, it begins at 20"):
        is_written(state, batch(5, KafkaRange({IN: 20}, {IN: 40})))
    assert state.after(following).superseded == {"q": 4}


def test_a_mark_of_version_1_without_offsets_is_gone_on_from_by_its_number() -> None:
    """A source that is not Kafka: the older build noted nothing of it."""
    state = found(marks=GroupMarks({Mark("q", 4): {OUT[0]: 4}}))
    assert is_written(state, batch(4, other("3", "4")))
    assert not is_written(state, batch(5, other("4", "5")))
    with pytest.raises(SourceMismatch, match="expected batch 5"):
        is_written(state, batch(6, other("5", "6")))
    with pytest.raises(SourceMismatch, match="no offsets that could be compared"):
        is_written(state, batch(0, other(None, "5"), query="p"))


def test_a_job_of_version_1_is_skipped() -> None:
    state = found(marks=GroupMarks({Mark("daily", 0): {OUT[0]: 0, IN: 30}}))
    assert is_written(state, Batch(Job("daily"), OUT, [kafka(0, 30)]))
    assert not is_written(state, Batch(Job("next"), OUT))
    with pytest.raises(SourceMismatch, match="with other offsets"):
        is_written(state, Batch(Job("daily"), OUT, [kafka(0, 31)]))


def test_a_mark_that_is_gone_on_from_counts_no_more() -> None:
    """It stays in the group where another partition carries the mark since."""
    marks = GroupMarks({Mark("q", 4): V1}, has_state=True)
    state = found(marks=GroupMarks({Mark("q", 4): V1})).after(batch(5, kafka(30, 40)))
    assert found(state, marks) == state


def test_marks_written_by_an_older_build_are_continued() -> None:
    """Somebody went back to it for a while."""
    state = SinkState(9, WrittenBatch(Mark("q", 4), (kafka(0, 30),)), jobs=(WrittenJob("j", ""),))
    newer = found(state, GroupMarks({Mark("q", 5): {OUT[0]: 5, IN: 40}}, has_state=True))
    assert is_written(newer, batch(5, kafka(30, 40)))
    assert is_written(newer, Batch(Job("j"), OUT))
    assert newer.after(batch(6, kafka(40, 50))).sequence == 10


def test_marks_of_several_queries_need_one_that_a_sinks_topic_carries() -> None:
    old = {TopicPartition("dropped", 0): 7}
    marks = GroupMarks({Mark("o", 9): old, Mark("q", 4): V1})
    state = found(marks=marks)
    assert state.batch is not None
    assert state.batch.mark == Mark("q", 4)
    with pytest.raises(StateLost, match=r"several batches.*batch 4 of query 'q', batch 9 of query"):
        found(marks=marks, topics=["new"])


# -- what TxnOffsetCommit says --------------------------------------------------------------------


def test_offsets_of_the_sinks_own_cluster_go_to_the_group() -> None:
    sources = [kafka(0, 30, cluster="c1"), kafka(0, 9, CLICKS, "c2"), kafka(0, 7, IN_1)]
    offsets = batch(4, *sources).offsets("c1")
    assert {key: at.offset for key, at in offsets.items()} == {TopicPartition("a", 0): 4, IN: 30}
    assert {at.metadata for at in offsets.values()} == {'{"query": "q", "batch": 4, "state": 2}'}
    assert set(batch(4, kafka(0, 7)).offsets("")) == {TopicPartition("a", 0)}


def test_a_topic_is_not_copied_into_itself() -> None:
    with pytest.raises(SourceMismatch, match="a is read, and written to"):
        batch(4, kafka(0, 30, TopicPartition("a", 1), "c1")).offsets("c1")


def test_a_mirrored_topic_has_the_name_of_its_source() -> None:
    """On another cluster, or on one that could not be asked."""
    for cluster in ("c2", ""):
        found = batch(4, kafka(0, 30, TopicPartition("a", 0), cluster)).offsets("c1")
        assert {key: at.offset for key, at in found.items()} == {TopicPartition("a", 0): 4}
