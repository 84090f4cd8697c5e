"""One episode: a few hundred requests of one seed, over a few connections, in batches.

Requests that may wait by right, are large or get no answer go over connections of their own. What
exceeds a limit of its API may be closed; whatever else is closed or stays silent is a failure.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any

from raylog.wire.api import ApiKey
from raylog.wire.error_codes import ErrorCode
from raylog.wire.errors import DecodeError
from raylog.wire.frame import decode_response
from tests.fuzz.requests import Made, Maker
from tests.fuzz.tally import CLOSED, SILENT, WAITED, Failure, Tally, codes_of
from tests.fuzz.world import Cluster, World

ANSWER_TIMEOUT_S = 60.0
"""As long as a busy machine needs: who is forgotten is so for good."""

LARGE_TIMEOUT_S = 120.0
"""For one that is large: thousands of groups or topics are asked for in turns."""

WAIT_S = 1.0
"""How long a request may wait that may wait by right; then its connection is dropped."""

WAITING_MAX = 4
BATCH_MAX = 24
KEPT_FRAMES = 60
KEPT_BYTES = 1 << 20
SHOWN = 600
_LENGTH = Struct(">i")
_RUN = re.compile(r"(.)\1{20,}")


@dataclass(frozen=True, slots=True)
class Target:
    """What episodes aim at, and where they write what they find."""

    address: str
    cluster: Cluster
    served: Mapping[int, range]
    deck: Sequence[tuple[ApiKey, int]]
    seed: int
    cards: int
    """Of the deck in one episode."""
    slots: int
    """Episodes at a time; each slot has names of its own."""
    huge: int
    """Elements of a huge array."""
    tally: Tally
    directory: Path


class Connection:
    """One connection, and the frames that it carried last."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer
        self.frames: deque[bytes] = deque(maxlen=KEPT_FRAMES)

    @classmethod
    async def open(cls, address: str) -> Connection:
        """A new connection."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, frame: bytes) -> None:
        """Write a frame; answers are read by the caller."""
        self.frames.append(frame)
        self._writer.write(frame)

    async def answer(self, timeout_s: float) -> bytes:
        """The next answer without its length; IncompleteReadError or OSError at the end.

        `asyncio.wait_for` of Python 3.11 forgets that it was cancelled if the answer is there.
        """
        async with asyncio.timeout(timeout_s):
            (length,) = _LENGTH.unpack(await self.reader.readexactly(_LENGTH.size))
            return await self.reader.readexactly(length)

    @property
    def is_over(self) -> bool:
        """Whether the broker has closed it."""
        return self.reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        """Drop it at once."""
        self._writer.transport.abort()


class Episode:
    """Plays the cards of one seed."""

    def __init__(self, target: Target, number: int) -> None:
        self._target = target
        self._number = number
        self._rng = Random(f"{target.seed}/{number}")
        self._world = World(target.cluster, f"s{number % target.slots}")
        first = number * target.cards
        deck = target.deck
        cards = [deck[(first + n) % len(deck)] for n in range(target.cards)]
        self._maker = Maker(self._rng, self._world, target.served, cards, target.huge)
        self._opened: list[Connection] = []
        self._main: Connection | None = None
        self._silent: Connection | None = None
        self._idle: list[Connection] = []
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Play all cards, or as many as the broker lives for."""
        try:
            await self._play(self._maker.opening())
            while self._waiting:
                await asyncio.wait(self._waiting)
            while batch := self._batch():
                await self._play(batch)
            if self._waiting:
                await asyncio.wait(self._waiting)
        finally:
            for task in self._waiting:
                task.cancel()
            await asyncio.gather(*self._waiting, return_exceptions=True)
            for connection in self._opened:
                connection.close()

    async def _open(self) -> Connection:
        connection = await Connection.open(self._target.address)
        self._opened.append(connection)
        return connection

    def _batch(self) -> list[Made]:
        made = (self._maker.next() for _ in range(self._rng.randint(1, BATCH_MAX)))
        return [one for one in made if one is not None]

    async def _play(self, batch: list[Made]) -> None:
        straight = []
        for made in batch:
            if made.is_silent:
                await self._send_silently(made)
            elif made.may_wait or made.is_large:
                await self._send_aside(made)
            else:
                straight.append(made)
        if self._main is None:
            self._main = await self._open()
        for made in straight:
            self._main.send(made.frame)
        for at, made in enumerate(straight):
            try:
                answer = await self._main.answer(ANSWER_TIMEOUT_S)
            except (OSError, EOFError, TimeoutError) as end:
                kept, self._main = self._main, None
                await self._blame(straight[at:], kept, end)
                return
            self._answered(made, answer, self._main)

    async def _send_silently(self, made: Made) -> None:
        if self._silent is None or self._silent.is_over:
            self._silent = await self._open()
        self._silent.send(made.frame)
        self._target.tally.unanswered(made.api_key, made.version, SILENT)

    async def _send_aside(self, made: Made) -> None:
        while len(self._waiting) >= WAITING_MAX:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._ask_aside(made))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _ask_aside(self, made: Made) -> None:
        target = self._target
        connection = self._idle.pop() if self._idle else await self._open()
        patience = WAIT_S if made.may_wait else LARGE_TIMEOUT_S
        connection.send(made.frame)
        try:
            answer = await connection.answer(patience)
        except TimeoutError as silence:
            connection.close()
            if made.may_wait:
                target.tally.unanswered(made.api_key, made.version, WAITED)
            else:
                self._failed(made, connection, f"no answer: {silence!r}")
        except (OSError, EOFError) as end:
            connection.close()
            target.tally.unanswered(made.api_key, made.version, CLOSED)
            if not made.exceeds_limit:
                self._failed(made, connection, f"connection closed: {end!r}")
        else:
            self._idle.append(connection)
            self._answered(made, answer, connection)

    def _answered(self, made: Made, frame: bytes, connection: Connection) -> None:
        tally = self._target.tally
        try:
            answer: Any
            _, answer = decode_response(made.api_key, made.version, frame)
        except DecodeError as broken:
            self._failed(made, connection, f"broken answer: {broken}")
            return
        codes = codes_of(made.api_key, made.version, answer)
        tally.answered(made.api_key, made.version, codes)
        if ErrorCode.UNKNOWN_SERVER_ERROR in codes:
            self._failed(made, connection, f"unknown server error: {shown(answer)}")
        self._world.learn(made.request, answer, made.api_key, is_spoiled=made.is_spoiled)

    async def _blame(self, batch: list[Made], kept: Connection, end: BaseException) -> None:
        """Find which of the requests that were on their way ends a connection: each on its own."""
        kept.close()
        what = "no answer" if isinstance(end, TimeoutError) else "connection closed"
        for made in batch:
            connection = await self._open()
            connection.send(made.frame)
            try:
                answer = await connection.answer(ANSWER_TIMEOUT_S)
            except (OSError, EOFError, TimeoutError) as again:
                self._target.tally.unanswered(made.api_key, made.version, CLOSED)
                self._failed(made, kept, f"{what}: alone it ends so, too: {again!r}")
            else:
                self._answered(made, answer, connection)
            connection.close()
        self._failed(batch[0], kept, f"{what} in a batch: {end!r}, {len(batch)} were on their way")

    def _failed(self, made: Made, connection: Connection, what: str) -> None:
        name = f"{made.api_key.name} v{made.version}"
        target = self._target
        path = target.directory / f"{target.seed}-{self._number}-{name.replace(' ', '-')}.json"
        text = f"{name} {shown(made.request)}"
        failure = Failure(what, self._number, text, str(path))
        if target.tally.fail(failure, made.api_key.name):
            write_frames(path, connection.frames)


def shown(message: Any) -> str:
    """A message as text that fits in a report; of a repeated character, one and the count."""
    text = _RUN.sub(lambda run: f"{run[1]}{{×{len(run[0])}}}", repr(message))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def write_frames(path: Path, frames: Sequence[bytes] | deque[bytes]) -> None:
    """Keep what a connection carried, the last megabyte of it."""
    kept: list[str] = []
    size = 0
    for frame in reversed(frames):
        size += len(frame)
        if kept and size > KEPT_BYTES:
            break
        kept.append(frame.hex())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept[::-1]))
