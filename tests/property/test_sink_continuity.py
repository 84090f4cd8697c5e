"""A streaming query and its sink through crashes, restored checkpoints, expiries and older builds.

The model of Spark records a batch's offsets before it writes the batch, and its number afterwards.
Whatever happens, the rows of each offset are written once, and none is skipped before one that is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.sink.batches import Batch, BatchFailed, KafkaRange
from raylog.sink.continuity import is_written, state_of
from raylog.sink.marks import Mark, group_marks
from raylog.sink.state import SinkState, decode_state, encode_state
from tests.support.marks import read_mark
from tests.support.spark_query import Checkpoint, Ends

OUT = [TopicPartition("b", 0), TopicPartition("a", 0)]
IN = [TopicPartition("in", 0), TopicPartition("in", 1)]


class SinkAndQuery(RuleBasedStateMachine):
    """One sink, its query's checkpoint and copies of it."""

    def __init__(self) -> None:
        super().__init__()
        self.source: Ends = dict.fromkeys(IN, 0)
        self.stored: SinkState | None = None
        self.is_registered = False
        self.is_known = False
        self.group: dict[TopicPartition, CommittedOffset] = {}
        self.written: Ends = dict.fromkeys(IN, 0)
        self.queries = 0
        self.copies: list[Checkpoint] = []

    @initialize()
    def begin(self) -> None:
        self.checkpoint = Checkpoint("q0", dict.fromkeys(IN, 0))

    # -- what happens --------------------------------------------------------------------------

    @rule(partition=st.integers(0, 1), count=st.integers(1, 3))
    def records_come(self, partition: int, count: int) -> None:
        self.source[IN[partition]] += count

    @rule(dies=st.booleans())
    def a_batch_is_written(self, dies: bool) -> None:
        """Write a batch. The driver may die between the sink's commit and Spark's."""
        batch = self.checkpoint.planned(self.source, OUT, "c1")
        if batch is None:
            return
        try:
            state = self.state()
            if is_written(state, batch):
                self.was_written(batch)
            else:
                self.commit(state, batch)
        except BatchFailed:
            return
        if not dies:
            self.checkpoint.done += 1

    @rule()
    def an_older_build_runs_for_a_while(self) -> None:
        """Run an older build, which skips by number, trusts the group alone, and has no state."""
        batch = self.checkpoint.planned(self.source, OUT, "c1")
        if batch is None or self.was_restored or (self.is_known and not self.group):
            return
        assert isinstance(batch.mark, Mark)
        (read,) = batch.sources
        assert isinstance(read, KafkaRange)
        newest = read_mark(self.group[self.carrier()].metadata) if self.group else None
        is_same = newest is not None and newest.query_id == batch.mark.query_id
        if newest is not None and is_same and newest.batch_id >= batch.mark.batch_id:
            self.checkpoint.done += 1
            return
        if any(self.group[key].offset != at for key, at in read.starts.items() if self.group):
            return
        self.is_known = True
        self.take(read)
        text = f'{{"query": "{batch.mark.query_id}", "batch": {batch.mark.batch_id}}}'
        offsets = {**read.ends, OUT[0]: batch.mark.batch_id}
        self.group |= {key: CommittedOffset(at, -1, text) for key, at in offsets.items()}
        self.checkpoint.done += 1

    @rule()
    def the_checkpoint_is_copied(self) -> None:
        self.copies.append(deepcopy(self.checkpoint))

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def a_copy_is_restored(self, data: st.DataObject) -> None:
        self.checkpoint = deepcopy(data.draw(st.sampled_from(self.copies)))

    @rule(goes_on=st.booleans())
    def the_checkpoint_is_lost(self, goes_on: bool) -> None:
        """Start a new query at the committed offsets, or anywhere."""
        begin = dict.fromkeys(IN, 0)
        try:
            if goes_on:
                begin |= {key: end for (_, key), end in self.state().ends().items()}
        except BatchFailed:
            return
        self.queries += 1
        self.checkpoint = Checkpoint(f"q{self.queries}", begin)

    @rule()
    def the_groups_offsets_expire(self) -> None:
        """Expire the group's offsets while the state is authoritative.

        An older build's mark would be lost.
        """
        if self.stored is not None and not group_marks(self.group).first:
            self.group.clear()

    @precondition(lambda self: self.stored is not None)
    @rule()
    def the_state_topic_is_deleted(self) -> None:
        self.stored, self.is_registered = None, False

    # -- the sink ------------------------------------------------------------------------------

    @property
    def was_restored(self) -> bool:
        """Whether the checkpoint is older than the sink's last batch.

        Older builds then lose rows.
        """
        done, noted = self.checkpoint.done, self.checkpoint.offsets
        return self.checkpoint.start() != self.written and noted[done : done + 1] != [self.written]

    def carrier(self) -> TopicPartition:
        """The partition whose offset an older build reads."""
        return OUT[0] if OUT[0] in self.group else OUT[1]

    def state(self) -> SinkState:
        """The state that a newly started driver reads."""
        if not (self.is_registered or self.stored is not None or self.is_known):
            self.is_registered = True
        self.is_known = True
        stored = self.stored
        if stored is not None:
            stored = decode_state(encode_state(stored), stored.sequence, "here")
        return state_of(
            stored,
            is_registered=self.is_registered,
            marks=group_marks(self.group),
            topics=["b", "a"],
        )

    def commit(self, state: SinkState, batch: Batch) -> None:
        (read,) = batch.sources
        assert isinstance(read, KafkaRange)
        self.take(read)
        self.stored = state.after(batch)
        self.group |= batch.offsets("c1")

    def take(self, read: KafkaRange) -> None:
        """Write rows. They must directly follow the last ones."""
        assert dict(read.starts) == self.written, "written twice, or left out"
        self.written = dict(read.ends)

    def was_written(self, batch: Batch) -> None:
        """Skip a batch. All of it must be written."""
        (read,) = batch.sources
        assert isinstance(read, KafkaRange)
        assert dict(read.ends) == self.written, "left out"

    @invariant()
    def the_sink_knows_what_is_written(self) -> None:
        if self.stored is not None and not group_marks(self.group).first:
            ends: Mapping[TopicPartition, int] = {
                key: end for (_, key), end in self.stored.ends().items()
            }
            assert ends == self.written


TestSinkAndQuery = SinkAndQuery.TestCase
TestSinkAndQuery.settings = settings(stateful_step_count=40)
