"""Episodes, several at a time, until as many requests are sent as were asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import uvloop

from tests.fuzz.episode import ANSWER_TIMEOUT_S, Connection, Episode, Target
from tests.fuzz.requests import deck_of
from tests.fuzz.survey import survey
from tests.fuzz.tally import Failure, Tally

SLOTS = 24
CARDS = 300
HUGE = 20_000
EVIDENCE = Path(".cache/malformed")


def target_of(
    address: str,
    seed: int,
    *,
    slots: int = SLOTS,
    cards: int = CARDS,
    huge: int = HUGE,
    once: bool = False,
    evidence: Path = EVIDENCE,
) -> Target:
    """What a campaign of this seed aims at; makes its topics. `once`: a deck without repeats."""
    host, _, port = address.rpartition(":")
    served, cluster = survey(host, int(port))
    return Target(
        address=address,
        cluster=cluster,
        served=served,
        deck=deck_of(served, seed, once=once),
        seed=seed,
        cards=cards,
        slots=slots,
        huge=huge,
        tally=Tally(),
        directory=evidence,
    )


def run_episodes(target: Target, numbers: range, is_over: Callable[[], bool]) -> None:
    """Run these episodes, each slot its own in order, until `is_over` says that it is enough."""
    uvloop.run(_run(target, numbers, is_over))


async def _run(target: Target, numbers: range, is_over: Callable[[], bool]) -> None:
    async def slot(first: int) -> None:
        for number in numbers[first :: target.slots]:
            if is_over():
                return
            try:
                await Episode(target, number).run()
            except (OSError, EOFError) as lost:
                target.tally.fail(Failure(f"the broker is gone: {lost!r}", number, ""), "all")
                return

    await asyncio.gather(*(slot(first) for first in range(target.slots)))


def replay(address: str, file: Path) -> list[str]:
    """Send the frames of a connection again, one by one; what became of each."""
    frames = [bytes.fromhex(frame) for frame in json.loads(file.read_text())]
    return uvloop.run(_replay(address, frames))


async def _replay(address: str, frames: list[bytes]) -> list[str]:
    connection = await Connection.open(address)
    found = []
    for frame in frames:
        connection.send(frame)
        try:
            answer = await connection.answer(ANSWER_TIMEOUT_S)
            found.append(f"{len(answer)} bytes answered")
        except (OSError, EOFError, TimeoutError) as end:
            found.append(f"{end!r}")
            connection.close()
            connection = await Connection.open(address)
    connection.close()
    return found
