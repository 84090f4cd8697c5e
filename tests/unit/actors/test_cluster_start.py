"""Progress messages while the brokers of a cluster start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from raylog.actors.broker.identity import Identity
from raylog.actors.cluster import BrokerPlan, ClusterPlan, missing_voters, start_cluster
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import ActorSpec, Runtime
from raylog.wire.errors import BrokerNotAvailable, InconsistentClusterId, KafkaError

PLAN = ClusterPlan("c", tuple(BrokerPlan(n, Path(f"b{n}"), {}) for n in range(3)), ())


class Brokers:
    """A runtime whose brokers answer `ready` with `answers` in turn."""

    def __init__(self, **answers: Sequence[KafkaError]) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers = {broker_name("c", int(one[1:])): list(a) for one, a in answers.items()}
        self._now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self._now_ms

    async def spawn(self, spec: ActorSpec) -> None:
        assert spec.restarts

    async def call(self, name: str, method: str, *args: Any, timeout_ms: int) -> object:
        if method == "describe":
            return name
        assert method == "ready"
        (wait_ms,) = args
        assert timeout_ms > wait_ms
        self.asked.append((name, wait_ms))
        left = self._answers.get(name)
        if left:
            failure = left.pop(0)
            if isinstance(failure, BrokerNotAvailable):
                self._now_ms += wait_ms
            raise failure
        return None


def start(brokers: Brokers, tell: Callable[[str], None] | None = None) -> list[str]:
    """Names of the brokers that were started, or what that raises."""
    runtime = cast("Runtime", brokers)
    return cast("list[str]", asyncio.run(start_cluster(runtime, PLAN, 12_000, tell=tell)))


def test_each_step_and_what_is_waited_for_is_reported() -> None:
    messages: list[str] = []
    waits = BrokerNotAvailable("broker 1 is still starting: no controller answers")
    brokers = Brokers(b1=[waits])
    assert start(brokers, messages.append) == [broker_name("c", n) for n in range(3)]
    assert messages == [
        "1 of 3 broker processes started",
        "2 of 3 broker processes started",
        "3 of 3 broker processes started",
        "waiting for the controller and the metadata",
        "1 of 3 brokers serve",
        "after 5 s broker 1 is still starting: no controller answers",
        "2 of 3 brokers serve",
        "3 of 3 brokers serve",
    ]


def test_the_whole_time_is_waited_for_in_parts() -> None:
    waits = [BrokerNotAvailable(f"broker 2 is still starting, {n}") for n in range(3)]
    brokers, messages = Brokers(b2=waits), list[str]()
    with pytest.raises(BrokerNotAvailable, match="still starting, 2"):
        start(brokers, messages.append)
    name = broker_name("c", 2)
    assert [asked for asked in brokers.asked if asked[0] == name] == [
        (name, 5_000),
        (name, 5_000),
        (name, 2_000),
    ]


def test_a_refusal_ends_the_wait_at_once() -> None:
    brokers, messages = Brokers(b0=[InconsistentClusterId("another cluster")]), list[str]()
    with pytest.raises(InconsistentClusterId):
        start(brokers, messages.append)
    assert "another cluster" not in messages


def test_every_broker_is_asked_once_when_nothing_changes() -> None:
    brokers = Brokers()
    start(brokers)
    assert brokers.asked == [(broker_name("c", n), 12_000) for n in range(3)]


def known(*brokers: tuple[int, str]) -> dict[int, Identity]:
    """Directories of brokers 0, 1, ..., each with the voters that it knows, as "0a 1b"."""
    return {
        broker_id: Identity(
            "c", broker_id, "abcd"[broker_id], tuple((int(one[0]), one[1]) for one in named.split())
        )
        for broker_id, named in brokers
    }


@pytest.mark.parametrize(
    ("directories", "missing"),
    [
        ([], []),
        ([(0, "0a")], []),
        ([(0, "0x")], [0]),
        ([(1, "0a")], [0]),
        ([(0, "0a 1b"), (1, "0a 1b")], []),
        ([(0, "0a 1b")], [1]),
        ([(0, "0a 1b 2c"), (1, "0a 1b 2c")], []),
        ([(0, "0a 1b 2c"), (3, "0a 1b 2c")], [1, 2]),
        ([(0, "0a 1b 2c"), (1, "0a 1x 2c")], []),
        ([(2, "0a 1b 2c"), (3, "3d")], []),
        ([(2, "0a 1b 2c"), (3, "")], []),
    ],
)
def test_voters_whose_directories_are_missing(
    directories: list[tuple[int, str]], missing: list[int]
) -> None:
    assert missing_voters(known(*directories)) == missing
