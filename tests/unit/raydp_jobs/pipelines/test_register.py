"""Runs of a pipeline that report in a topic, and see each other's reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from raylog.client import BlockingClient, ClientError, NewTopic
from raylog.raydp_jobs.pipelines import register
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.register import (
    CONFIGS,
    PARTITIONS,
    TOPIC,
    AlreadyRuns,
    Displaced,
    HeldRun,
    RunTopic,
    ask_to_stop,
    here,
    standing,
)
from raylog.raydp_jobs.pipelines.runs import Place, RunState, Standing, StopRequest, encode, run_key
from raylog.testing import EmbeddedBroker
from tests.support.ray_clusters import wait_until

ELSEWHERE = Place("b", 7, "at noon", "another machine")
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"counts-{next(_numbers)}"


@pytest.fixture
def open_topic(bootstrap: str, name: str) -> Iterator[Callable[[], RunTopic]]:
    """The pipeline's records, as one process after the other opens them."""
    opened: list[RunTopic] = []

    def open_it() -> RunTopic:
        opened.append(RunTopic(bootstrap, name))
        return opened[-1]

    yield open_it
    for topic in opened:
        topic.close()


@pytest.fixture
def other(open_topic: Callable[[], RunTopic]) -> RunTopic:
    """The records as another machine sees and writes them."""
    topic = open_topic()
    topic.prepare()
    return topic


def ignored(_: object) -> None:
    """Nobody is told."""


def write_state(topic: RunTopic, **fields: object) -> RunState:
    """A run on another machine tells something."""
    state = RunState(topic.watch.name, ELSEWHERE, "running", 1, run="other", generation=1)
    state = replace(state, **fields)  # type: ignore[arg-type]  # of the test's own
    topic.write(run_key(state.name), encode(state))
    return state


def test_a_run_is_known_to_others_while_it_runs_and_after(
    open_topic: Callable[[], RunTopic], other: RunTopic
) -> None:
    with HeldRun(open_topic(), ignored) as run:
        run.tell(replace(run.state, state="running"))
        found = other.read().holder
        assert found is not None
        assert (found.state, found.place, found.generation) == ("running", here(), 1)
        assert standing(other) is Standing.RUNS
        run.tell(replace(run.state, state="failed", error="no more disk"))
    found = other.read().holder
    assert found is not None
    assert (found.state, found.error) == ("failed", "no more disk")
    assert standing(other) is Standing.ENDED


def test_deferred_state_is_reported_with_the_next_beat(
    open_topic: Callable[[], RunTopic], other: RunTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "BEAT_S", 0.02)
    with HeldRun(open_topic(), ignored) as run:
        run.tell(replace(run.state, batch_id=3), at_once=False)

        def was_reported() -> bool:
            found = other.read().holder
            return found is not None and found.batch_id == 3 and found.beat > 1

        wait_until(was_reported, "a beat with the batch")


def test_a_second_run_on_this_machine_is_refused(open_topic: Callable[[], RunTopic]) -> None:
    with (
        HeldRun(open_topic(), ignored),
        pytest.raises(AlreadyRuns, match=f"is running already, as process {here().pid} on"),
    ):
        HeldRun(open_topic(), ignored)


def test_a_run_elsewhere_that_beats_is_not_displaced(
    open_topic: Callable[[], RunTopic], other: RunTopic
) -> None:
    write_state(other)
    with pytest.raises(AlreadyRuns, match="is running already, as process 7 on b"):
        HeldRun(open_topic(), ignored, lambda _: write_state(other, beat=1))


def test_a_run_elsewhere_that_is_silent_is_displaced(
    open_topic: Callable[[], RunTopic], other: RunTopic
) -> None:
    """And hears of it when it comes back."""
    old = HeldRun(open_topic(), ignored)
    old.tell(replace(old.state, place=ELSEWHERE))
    old._ended.set()  # it is suspended
    with HeldRun(open_topic(), ignored, silence_s=0.2) as new:
        assert new.state.generation == old.state.generation + 1
        with pytest.raises(Displaced, match="was taken over by another run: process"):
            old.confirm()
        new.confirm()
        assert other.read().is_held_by(new.state.run)
    old.close()


def test_a_run_that_was_killed_here_is_displaced_at_once(
    open_topic: Callable[[], RunTopic], other: RunTopic
) -> None:
    write_state(other, place=replace(here(), started="before"))
    with HeldRun(open_topic(), ignored, silence_s=3_600) as run:
        assert run.state.generation == 2


def test_a_run_of_this_process_that_could_not_tell_its_end_is_displaced(
    open_topic: Callable[[], RunTopic],
) -> None:
    with HeldRun(open_topic(), ignored) as ended:
        assert ended.state.is_live
    with HeldRun(open_topic(), ignored, silence_s=3_600) as run:
        assert run.state.generation == 2


def test_a_beat_of_a_run_that_was_displaced_changes_nothing(
    open_topic: Callable[[], RunTopic], other: RunTopic
) -> None:
    write_state(other, state="stopped")
    with HeldRun(open_topic(), ignored) as run:
        write_state(other, beat=9)
        run.confirm()
        assert other.read().is_held_by(run.state.run)


def test_one_of_two_concurrent_starts_gives_way(
    open_topic: Callable[[], RunTopic], other: RunTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RunTopic.write

    def later(topic: RunTopic, key: bytes, value: bytes) -> None:
        monkeypatch.undo()
        write_state(other)
        write(topic, key, value)

    topic = open_topic()
    monkeypatch.setattr(RunTopic, "write", later)
    with pytest.raises(AlreadyRuns, match="was started at the same time, as process 7 on b"):
        HeldRun(topic, ignored)


def test_a_request_to_stop_is_heard_with_the_next_beat(
    open_topic: Callable[[], RunTopic], other: RunTopic
) -> None:
    requests: list[StopRequest] = []
    with HeldRun(open_topic(), requests.append) as run:
        ask_to_stop(other, "a run before", is_now=False)
        run.confirm()
        assert requests == []
        ask_to_stop(other, run.state.run, is_now=True)
        run.confirm()
        assert set(requests) == {StopRequest(run.state.run, is_now=True)}


def test_state_of_a_newer_build_ends_the_run(
    open_topic: Callable[[], RunTopic],
    other: RunTopic,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(register, "BEAT_S", 0.02)
    with HeldRun(open_topic(), ignored) as run:
        other.write(run_key(name), b'{"version": 7}')
        wait_until(lambda: run.failure is not None, "a beat that finds it")
        assert "is of version 7, this build knows 0 to 1" in str(run.failure)


@pytest.mark.parametrize(
    ("partitions", "configs", "says"),
    [
        (1, CONFIGS, f"topic {TOPIC} has 1 partitions, expected {PARTITIONS} or more"),
        (PARTITIONS, {}, f"topic {TOPIC} has cleanup.policy=delete, expected compact"),
    ],
)
def test_a_topic_that_would_not_keep_records_is_refused(
    partitions: int, configs: dict[str, str], says: str
) -> None:
    with EmbeddedBroker() as broker:
        with BlockingClient(broker.bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, partitions, 1, configs)])
        with RunTopic(broker.bootstrap, "p") as topic, pytest.raises(PipelineFailed, match=says):
            topic.prepare()


def test_one_topic_serves_all_pipelines(bootstrap: str) -> None:
    with BlockingClient(bootstrap) as client:
        for one in ("a", "b"):
            with RunTopic(bootstrap, one) as topic:
                topic.prepare()
        assert len(client.describe_topic(TOPIC).partitions) == PARTITIONS


def test_without_brokers_a_run_does_not_begin(name: str) -> None:
    with RunTopic("127.0.0.1:1", name, timeout_ms=200) as topic, pytest.raises(ClientError):
        HeldRun(topic, ignored)
