"""Whether the generating process was the bottleneck; and what its users share."""

from __future__ import annotations

import os
import time

import pytest

from raylog.loadtest.clock import Clock
from raylog.loadtest.generator import LATE_MS, GeneratorWatch, limited, within
from raylog.loadtest.histograms import added_up
from raylog.loadtest.local import Local
from raylog.loadtest.results import Generator
from raylog.loadtest.scenario import Scenario


def generator(cpu_share: list[float], late_ms: list[float]) -> Generator:
    watch = GeneratorWatch(0)
    return watch.result().model_copy(update={"cpu_share": cpu_share, "late_ms": late_ms})


def local(worker: int = 0, workers: int = 1) -> Local:
    scenario = Scenario.model_validate(
        {
            "name": "s",
            "question": "?",
            "duration_s": 10,
            "warmup_s": 0,
            "topics": {},
            "users": [{"kind": "admin"}],
        }
    )
    return Local(scenario, "run", "127.0.0.1:9092", worker, workers, {"security.protocol": "SSL"})


def test_seconds_are_sampled() -> None:
    watch = GeneratorWatch(4)
    watch.woke(0, 9_000_000)
    watch.sample(0.0)
    watch.woke(1_000, 300)
    for _ in range(3):
        watch.woke(1_000, 7_000)
    watch.sample(1.0)
    watch.sample(2.0)
    found = watch.result(-5, 2)
    assert (found.worker, found.pid) == (4, os.getpid())
    assert found.late_ms == [pytest.approx(6.9, abs=0.1), 0.0]
    assert len(found.cpu_share) == 2
    assert min(found.cpu_share) >= 0
    assert added_up([found.lateness]).total_count == 4, "not what was before the start"
    assert (found.clock_offset_us, found.clock_uncertainty_us) == (-5, 2)


@pytest.mark.parametrize("users", [1, 4])
def test_one_stall_counts_however_often_users_wake_up(users: int) -> None:
    watch = GeneratorWatch(0)
    watch.sample(0.0)
    for _ in range(users):
        for _ in range(200):
            watch.woke(1_000, 80)
        watch.woke(1_000, 780_000)
    watch.sample(1.0)
    assert watch.result().late_ms == [pytest.approx(770, abs=2)]


def test_a_moment_s_lateness_is_not_the_limit() -> None:
    watch = GeneratorWatch(0)
    watch.sample(0.0)
    for _ in range(950):
        watch.woke(1_000, 0)
    watch.woke(1_000, 25_000)
    watch.sample(1.0)
    (late_ms,) = watch.result().late_ms
    assert 0 < late_ms < LATE_MS


def test_a_process_that_stood_still_was_the_limit_all_that_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu_s = iter([0.0, 0.5, 1.0, 1.5, 21.5])
    monkeypatch.setattr(time, "process_time", lambda: next(cpu_s))
    watch = GeneratorWatch(0)
    watch.sample(0.0)
    watch.sample(1.0)
    watch.woke(1_000_000, 20_500_000)
    watch.sample(22.5)
    watch.sample(23.5)
    watch.sample(43.5)
    found = watch.result()
    assert len(found.cpu_share) == len(found.late_ms) == 44
    assert sum(found.cpu_share) == pytest.approx(21.5, abs=0.05)
    assert limited([found], 30.0) == [(1.0, 23.0), (24.0, 30.0)]
    assert [len(one.cpu_share) for one in within([found], 29.5)] == [30]


def test_a_sample_that_comes_a_moment_late_is_of_the_second_before() -> None:
    watch = GeneratorWatch(0)
    watch.sample(0.0)
    watch.woke(1_000, 500_000)
    watch.sample(1.03)
    watch.sample(2.01)
    late_ms = watch.result().late_ms
    assert late_ms[0] > LATE_MS
    assert late_ms[1:] == [0.0, 0.0]


def test_spans_in_which_the_generator_was_the_limit() -> None:
    calm, busy = [0.2] * 6, [0.2, 0.95, 0.99, 0.1, 0.1, 0.92]
    late = [0.0, 0.0, 0.0, 40.0, 0.0, 0.0]
    assert limited([generator(calm, [0.0] * 6)], 6.0) == []
    both = [generator(busy, late), generator(calm, [0.0] * 6)]
    assert limited(both, 6.0) == [(1, 4), (5, 6)]
    assert limited(both, 5.5) == [(1, 4), (5, 5.5)]
    assert limited(both, 5.0) == [(1, 4)]
    assert limited([], 6.0) == []


def test_the_clock_follows_the_first_process_s() -> None:
    clock = Clock()
    before_us = clock.now_us()
    clock.offset_us = 1_000_000_000
    assert clock.now_us() - before_us < -999_000_000
    clock.offset_us = 0
    assert clock.now_us() >= before_us
    assert clock.offset_us == 0


def test_numbers_of_users_are_their_own_in_all_processes() -> None:
    first, second = local(0, 2), local(1, 2)
    assert [first.take_seat(0), second.take_seat(0), first.take_seat(0)] == [0, 1, 2]
    assert first.take_seat(1) == 0
    first.leave_seat(0, 0)
    assert first.take_seat(0) == 0
    assert len({first.new_sender(), first.new_sender(), second.new_sender()}) == 3


def test_names_and_settings_of_a_run() -> None:
    of = local()
    assert (of.topic("t"), of.group("g")) == ("t-run", "g-run")
    assert of.client_settings({"acks": "all"}) == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SSL",
        "acks": "all",
    }
    of.started_us = 77
    assert of.recorder.started_us == 77
    assert of.generator_result().clock_offset_us == 0
    for uncertainty_us in (40, 900, 60):
        of.note_uncertainty(uncertainty_us)
    assert of.generator_result().clock_uncertainty_us == 900, "the worst"
