"""Whether the process that makes the load was the limit; and what its users share."""

from __future__ import annotations

import os

from raylog.loadtest.clock import Clock
from raylog.loadtest.generator import GeneratorWatch, limited
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
    watch.woke(300)
    for _ in range(3):
        watch.woke(7_000)
    watch.sample()
    watch.sample()
    found = watch.result(-5, 2)
    assert (found.worker, found.pid) == (4, os.getpid())
    assert found.late_ms == [7.0, 0.0]
    assert len(found.cpu_share) == 2
    assert min(found.cpu_share) >= 0
    assert added_up([found.lateness]).total_count == 4
    assert (found.clock_offset_us, found.clock_uncertainty_us) == (-5, 2)


def test_spans_in_which_the_generator_was_the_limit() -> None:
    calm, busy = [0.2] * 6, [0.2, 0.95, 0.99, 0.1, 0.1, 0.92]
    late = [0.0, 0.0, 0.0, 40.0, 0.0, 0.0]
    assert limited([generator(calm, [0.0] * 6)]) == []
    assert limited([generator(busy, late), generator(calm, [0.0] * 6)]) == [(1, 4), (5, 6)]
    assert limited([]) == []


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
