"""A campaign ends when it is told to."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any, cast

from tests.fuzz.episode import Connection

_STEPS = 10
_INTERRUPTED = """
import signal
from bench.__main__ import end_on_termination
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what runs in the background
end_on_termination()
print(flush=True)
signal.pause()
"""


def test_cancelling_a_wait_for_an_answer_works_though_the_answer_is_there() -> None:
    """Whatever the event loop has done by then of what an answer brings about."""

    async def scenario(steps: int) -> bool:
        reader = asyncio.StreamReader()
        connection = Connection(reader, cast(Any, None))
        waiting = asyncio.create_task(connection.answer(60))
        await asyncio.sleep(0.01)
        reader.feed_data(b"\0\0\0\4none")
        for _ in range(steps):
            await asyncio.sleep(0)
        was_in_time = waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() is was_in_time
        return was_in_time

    assert {asyncio.run(scenario(steps)) for steps in range(_STEPS)} == {True, False}


def test_an_interrupt_ends_what_runs_in_the_background() -> None:
    command = [sys.executable, "-c", _INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) != 0
        finally:
            process.kill()
