"""SIGTERM: which process ends when."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from raylog.actors.names import BROKER, CONTROLLER, REPLICA, SUPERVISOR
from raylog.actors.runtime.base import ActorGone, ActorSpec, PeerLost, PeerTimeout
from raylog.actors.runtime.termination import (
    BROKER_ENDS_WITHIN_S,
    CONTROLLER_S,
    EXIT_CODE,
    Termination,
    end_in_order,
)
from raylog.simulation.loop import SimLoop, run_in_virtual_time
from raylog.wire.errors import KafkaStorageError

DRAIN_MS = 10_000


class Shell:
    """Records calls, and takes a while to shut down."""

    def __init__(self, takes_s: float = 0.0, failure: Exception | None = None) -> None:
        self.asked: list[str] = []
        self._takes_s = takes_s
        self._failure = failure

    async def start(self) -> None:
        """Nothing."""

    async def shutdown(self) -> None:
        """Takes a while."""
        self.asked.append("shutdown")
        await asyncio.sleep(self._takes_s)
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Noted."""
        self.asked.append("stop")

    def link_received(self, request: object) -> None:
        """None come."""

    def link_lost(self, peer: int) -> None:
        """None are."""


class Asked:
    """A runtime whose broker reports these states in turn, the last one for ever."""

    def __init__(self, *states: str | Exception) -> None:
        self.asked: list[str] = []
        self._states: Sequence[str | Exception] = states

    def monotonic_ms(self) -> float:
        """Virtual."""
        return asyncio.get_running_loop().time() * 1_000

    async def sleep(self, seconds: float) -> None:
        """Virtual."""
        await asyncio.sleep(seconds)

    async def call(self, peer: str, method: str, *, timeout_ms: int) -> dict[str, object]:
        """The next state."""
        self.asked.append(f"{peer} {method}")
        state, *later = self._states
        self._states = later or [state]
        if isinstance(state, Exception):
            raise state
        return {"state": state}


def took_s(role: str, shell: Shell, runtime: Any, name: str = "c/broker/1/0") -> float:
    """How long an actor takes until its process may end."""
    taken: list[float] = []

    async def run(loop: SimLoop) -> None:
        began = loop.time()
        await end_in_order(ActorSpec(name, role, drain_ms=DRAIN_MS), shell, runtime)
        taken.append(loop.time() - began)

    run_in_virtual_time(run)
    return taken[0]


def test_a_broker_shuts_down_and_lets_go_of_its_directory() -> None:
    shell = Shell(takes_s=4)
    assert took_s(BROKER, shell, Asked("running")) == pytest.approx(4)
    assert shell.asked == ["shutdown", "stop"]


def test_a_broker_that_takes_too_long_ends_as_it_is() -> None:
    shell = Shell(takes_s=60)
    assert took_s(BROKER, shell, Asked("running")) == pytest.approx(DRAIN_MS / 1_000)
    assert shell.asked == ["shutdown"]


@pytest.mark.parametrize(
    "failure", [KafkaStorageError("full"), ActorGone("nobody"), RuntimeError("nobody foresaw")]
)
def test_a_broker_that_fails_in_shutting_down_ends(failure: Exception) -> None:
    shell = Shell(failure=failure)
    assert took_s(BROKER, shell, Asked("running")) < 1
    assert shell.asked == ["shutdown"]


def test_a_child_goes_on_while_its_broker_shuts_down() -> None:
    shell, runtime = Shell(), Asked("running", *["shutting down"] * 40, "shut down")
    assert took_s(REPLICA, shell, runtime, "c/replica/1/7") == pytest.approx(4.1, abs=0.2)
    assert set(runtime.asked) == {"c/broker/1/0 ping"}
    assert shell.asked == ["stop"]


def test_a_child_does_not_wait_longer_than_its_broker_may_take() -> None:
    shell = Shell()
    within = took_s(REPLICA, shell, Asked("shutting down"), "c/replica/1/7")
    assert within == pytest.approx(DRAIN_MS / 1_000)


@pytest.mark.parametrize("state", ["running", PeerTimeout("late")])
def test_a_child_that_is_ended_alone_stops_soon(state: str | Exception) -> None:
    shell = Shell()
    within = took_s(REPLICA, shell, Asked(state), "c/replica/1/7")
    assert within == pytest.approx(BROKER_ENDS_WITHIN_S, abs=0.2)
    assert shell.asked == ["stop"]


def test_a_child_without_its_broker_stops_at_once() -> None:
    shell = Shell()
    assert took_s(REPLICA, shell, Asked(PeerLost("gone")), "c/replica/1/7") < 0.1
    assert shell.asked == ["stop"]


def test_a_controller_serves_those_who_hand_over() -> None:
    shell = Shell()
    assert took_s(CONTROLLER, shell, Asked(), "c/controller") == pytest.approx(CONTROLLER_S)
    assert shell.asked == ["stop"]


def test_a_supervisor_ends_at_once() -> None:
    shell = Shell()
    assert took_s(SUPERVISOR, shell, Asked(), "c/supervisor") == 0
    assert shell.asked == ["stop"]


def test_a_second_sigterm_ends_the_process_at_once() -> None:
    begun: list[int] = []
    codes: list[int] = []

    async def end() -> None:
        begun.append(1)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        termination = Termination(loop, lambda: loop.create_task(end()), codes.append)
        termination.on_signal()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (begun, codes) == ([1], [])
        termination.on_signal()
        assert codes == [EXIT_CODE]

    asyncio.run(run())


def test_ray_ends_its_workers_by_the_function_that_is_replaced() -> None:
    from ray._private.worker import Worker

    assert "raise_sys_exit_with_custom_error_message" in inspect.getsource(Worker.main_loop)
