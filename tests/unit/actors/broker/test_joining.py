"""A broker that the cluster refuses asks again, later each time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from raylog.actors.broker.joining import keep_joining
from raylog.wire.errors import DuplicateBrokerRegistration, KafkaError, StaleBrokerEpoch
from tests.support.voters import VoterWorld


def test_a_refused_broker_asks_again_and_says_each_reason_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, later = DuplicateBrokerRegistration("another is there"), StaleBrokerEpoch("too old")
    answers: list[KafkaError | None] = [first, first, later, first, *([later] * 3), None]
    told: list[KafkaError | None] = []
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
            await keep_joining(runtime, join, told.append)

    asyncio.run(run())
    assert told == answers
    assert slept == [0.5, 1, 2, 4, 8, 10, 10]
    logged = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert logged == [str(one) for one in (first, later, first, later)]


def test_what_is_no_refusal_is_not_tried_again() -> None:
    async def run() -> None:
        async def join() -> None:
            raise AssertionError("a fault of our own")

        told: list[KafkaError | None] = []
        with pytest.raises(AssertionError, match="a fault of our own"):
            await keep_joining(VoterWorld(0).runtime, join, told.append)
        assert told == []

    asyncio.run(run())
