"""The state that a sink keeps of its writes: next states, and its JSON form."""

import json

import pytest

from raylog.client.cluster import TopicPartition
from raylog.sink.batches import Batch, KafkaRange, OtherRange
from raylog.sink.marks import Job, Mark
from raylog.sink.state import (
    JOBS_MAX,
    SinkState,
    StateUnreadable,
    WrittenBatch,
    WrittenJob,
    decode_state,
    encode_state,
)

OUT = [TopicPartition("out", 0)]
IN, LEFT = TopicPartition("in", 0), TopicPartition("left", 0)
STATE = SinkState(
    17,
    WrittenBatch(
        Mark("q-ü", 50),
        (
            KafkaRange({IN: 800}, {IN: 900, TopicPartition("in", 1): 4}, "c1", {"in": "b2c1"}),
            OtherRange('{"logOffset":3}', '{"logOffset":4}'),
            OtherRange(None, "-"),
            KafkaRange({}, {}),
        ),
    ),
    {("c2", IN): 5, ("", LEFT): 40},
    (WrittenJob("2026-11-21", ""), WrittenJob("2026-11-22", "0f343b09")),
    {"q-ü": 12},
)


@pytest.mark.parametrize(
    "state",
    [SinkState(1), STATE, SinkState(2, WrittenBatch(Mark("q", 0), (), is_merged=True))],
    ids=["empty", "full", "merged"],
)
def test_a_state_survives_the_trip(state: SinkState) -> None:
    assert decode_state(encode_state(state), state.sequence, "here") == state


@pytest.mark.parametrize(
    "document",
    [
        "x",
        "[]",
        '{"batch": 1}',
        '{"batch": {"query": "q", "batch": 1}}',
        '{"batch": {"query": "q", "batch": 1, "sources": [{"topics": {}}]}}',
        '{"jobs": [["a"]]}',
    ],
)
def test_damaged_state_is_reported_with_its_place(document: str) -> None:
    with pytest.raises(StateUnreadable, match="state of sink 's' in t-0 is damaged"):
        decode_state(document.encode(), 1, "state of sink 's' in t-0")


def test_a_batch_leaves_its_own_offsets_and_those_of_topics_that_are_read_no_longer() -> None:
    source = KafkaRange({IN: 900}, {IN: 950}, "c1")
    state = STATE.after(Batch(Mark("p", 0), OUT, [source]))
    assert state.sequence == 18
    assert state.batch == WrittenBatch(Mark("p", 0), (source,))
    assert state.ends() == {
        ("c1", IN): 950,
        ("c1", TopicPartition("in", 1)): 4,
        ("c2", IN): 5,
        ("", LEFT): 40,
    }
    assert state.jobs == STATE.jobs


def test_offsets_of_an_unknown_cluster_are_those_that_a_batch_has_now() -> None:
    """So the mark of an older build is taken over once its source's cluster is known."""
    old = SinkState(0, WrittenBatch(Mark("q", 0), (KafkaRange({}, {IN: 10}),), is_merged=True))
    state = old.after(Batch(Mark("q", 1), OUT, [KafkaRange({IN: 10}, {IN: 20}, "c1")]))
    assert state.ends() == {("c1", IN): 20}


def test_a_job_moves_offsets_and_leaves_the_batch() -> None:
    job = Batch(Job("2026-11-23"), OUT, [KafkaRange({}, {IN: 1_000}, "c1")])
    state = STATE.after(job)
    assert (state.sequence, state.batch) == (18, STATE.batch)
    assert state.ends()["c1", IN] == 1_000
    assert [known.job_id for known in state.jobs] == ["2026-11-21", "2026-11-22", "2026-11-23"]


def test_a_bounded_number_of_jobs_is_remembered() -> None:
    state = SinkState()
    for n in range(JOBS_MAX + 5):
        state = state.after(Batch(Job(str(n)), OUT))
    assert len(state.jobs) == JOBS_MAX
    assert (state.jobs[0].job_id, state.jobs[-1].job_id) == ("5", str(JOBS_MAX + 4))


def test_the_document_is_as_its_module_says() -> None:
    """Later builds read it."""
    written = WrittenBatch(Mark("q", 1), (KafkaRange({IN: 0}, {IN: 9}, "c1", {"in": "id"}),))
    state = SinkState(3, written, {("c1", LEFT): 4}, (WrittenJob("j", "d"),), {"q": 0})
    of_in = {"id": "id", "starts": {"0": 0}, "ends": {"0": 9}}
    assert json.loads(encode_state(state)) == {
        "batch": {
            "query": "q",
            "batch": 1,
            "sources": [{"cluster": "c1", "topics": {"in": of_in}}],
        },
        "positions": [{"cluster": "c1", "topics": {"left": {"0": 4}}}],
        "jobs": [["j", "d"]],
        "superseded": {"q": 0},
    }
