"""Counters, and what happens to them at a scrape."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from raylog.actors.metrics.counts import OTHERS, Bounded, Histogram
from raylog.actors.metrics.families import process
from raylog.actors.metrics.families.table import FAMILIES, TABLES
from raylog.actors.metrics.family import Kind, Scope, Table
from raylog.actors.metrics.samples import Samples, process_metrics
from raylog.actors.runtime.base import Runtime
from raylog.actors.runtime.inproc import InprocWorld
from raylog.actors.runtime.usage import LAG_TICK_S, LoopLag
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import FakeRuntime


def test_a_histogram_counts_each_value_in_one_bucket_whose_bound_is_inclusive() -> None:
    seconds = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.100_1, 1.0, 7.0):
        seconds.observe(value)
    assert seconds.counts == [2, 2, 1]
    assert seconds.total == pytest.approx(8.2501)


def test_names_beyond_the_limit_share_one_count_until_one_is_forgotten() -> None:
    bounded = Bounded(lambda: Histogram((1.0,)), most=2)
    a, b, c = (bounded.of(name) for name in "abc")
    assert bounded.of("d") is c
    assert len({id(one) for one in (a, b, c)}) == 3
    assert [name for name, _ in bounded.items()] == ["a", "b", OTHERS]
    bounded.forget("a")
    assert bounded.of("d") is not c
    assert [name for name, _ in bounded.items()] == ["b", "d", OTHERS]


def test_samples_carry_the_family_its_labels_and_the_value() -> None:
    table = Table("T", Scope.BROKER)
    things = table.counter("raylog_things_total", "Things.", "colour")
    waits = table.histogram("raylog_wait_seconds", "Waits.", bounds=(0.5,))
    samples = Samples()
    samples.add(things, 3, "red")
    seconds = Histogram(waits.bounds)
    seconds.observe(0.25)
    samples.histogram(waits, seconds)
    assert samples.taken == [
        ("raylog_things_total", ("red",), 3),
        ("raylog_wait_seconds", (), (0.25, 1, 0)),
    ]
    assert things.all_labels == ("broker", "colour")
    assert (waits.unit, things.unit) == ("seconds", "")


@in_loop
async def test_a_process_is_notified_with_what_its_actor_counts() -> None:
    metrics = process_metrics(InprocWorld(lambda role: NotImplemented).runtime(), Samples())
    values: dict[str, Any] = {name: value for name, _, value in metrics.process}
    assert metrics.pid == os.getpid()
    assert values[process.CPU_SECONDS.name] > 0
    assert values[process.RESIDENT_BYTES.name] > 1 << 20
    assert 0 < values[process.OPEN_FILES.name] <= values[process.MAX_FILES.name]


def test_an_actor_without_a_process_of_its_own_tells_of_none() -> None:
    assert process_metrics(cast(Runtime, FakeRuntime()), Samples()).process == []


def test_an_event_loop_that_is_held_up_shows_its_lag() -> None:
    class Loop:
        now = 10.0

        def time(self) -> float:
            return self.now

        def call_at(self, due: float, callback: object) -> None:
            self.due, self.callback = due, callback

    loop = Loop()
    lag = LoopLag(loop)  # type: ignore[arg-type]  # only what is used of a loop
    for late in (0.0, 0.03):
        loop.now = loop.due + late
        loop.callback()  # type: ignore[operator]
    assert lag.seconds.total == pytest.approx(0.03)
    assert sum(lag.seconds.counts) == 2
    assert lag.seconds.counts[lag.seconds.bounds.index(0.05)] == 1
    assert loop.due == pytest.approx(loop.now + LAG_TICK_S)


def test_every_family_has_a_name_and_a_help_that_prometheus_takes() -> None:
    assert sum(len(table.families) for table in TABLES) == len(FAMILIES), "a name occurs twice"
    for family in FAMILIES.values():
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER), family.name
        assert family.help.endswith("."), family.name
        assert len(set(family.all_labels)) == len(family.all_labels), family.name
        assert {"le", "quantile", "job", "instance"}.isdisjoint(family.all_labels), family.name
