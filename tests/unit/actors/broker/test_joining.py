"""A broker that the cluster refuses asks again, after longer and longer pauses."""

from __future__ import annotations

import asyncio
import logging

import pytest

from raylog.actors.broker.joining import keep_joining
from raylog.wire.errors import DuplicateBrokerRegistration, KafkaError, StaleBrokerEpoch
from tests.worlds.broker.voters import VoterWorld
from tests.worlds.decorators import in_loop


def test_a_refused_broker_asks_again_and_says_each_reason_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, later = DuplicateBrokerRegistration("another is there"), StaleBrokerEpoch("too old")
    answers: list[KafkaError | None] = [first, first, later, first, *([later] * 3), None]
    reported: list[KafkaError | None] = []
    slept: list[float] = []

    async def run() -> None:
        runtime = VoterWorld(0).runtime
        left = iter(answers)

        async def join() -> None:
            refused = next(left)
            if refused is not None:
                raise refused

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr(runtime, "sleep", sleep)
        with caplog.at_level(logging.ERROR, "raylog.actors.broker.joining"):
            await keep_joining(runtime, join, reported.append)

    asyncio.run(run())
    assert reported == answers
    assert slept == [0.5, 1, 2, 4, 8, 10, 10]
    logged = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert logged == [str(one) for one in (first, later, first, later)]


@in_loop
async def test_unexpected_error_is_raised_without_a_retry() -> None:
    async def join() -> None:
        raise AssertionError("a fault of our own")

    reported: list[KafkaError | None] = []
    with pytest.raises(AssertionError, match="a fault of our own"):
        await keep_joining(VoterWorld(0).runtime, join, reported.append)
    assert reported == []
