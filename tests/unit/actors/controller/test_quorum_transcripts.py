"""Elections, leases, crashes and differing logs, step by step in `testdata/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.actors.controller.rules.quorum import AskLog, Role
from raylog.actors.metadata.voting import NewEpoch, VoterAppend, VoterAppended, VoterState
from tests.worlds.quorum import CONTROLLERS, Budget, ControllerSide, Message, World, founded
from tests.worlds.transcripts import play

PLENTY = Budget(*[99] * len(Budget._fields))
FILES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_quorum_follows_the_transcript(path: Path) -> None:
    play(path, Quorum().run)


class Quorum:
    """Three voters of a founded cluster, and controllers a and b."""

    def __init__(self) -> None:
        self.world = founded(PLENTY)

    def run(self, command: str) -> list[str]:
        """Carry out a command; what is new after it."""
        before = self.world
        self.world = before.clone()
        name, *args = command.split()
        getattr(self, name)(*args)
        self.world.check()
        return [*_news(before, self.world)] or ["nothing"]

    def begin(self, name: str, *seen: str) -> None:
        """A controller looks for voters, and sees some."""
        self.world._begin(CONTROLLERS.index(name), tuple(map(int, seen)))

    def deliver(self, *ways: str) -> None:
        """Messages arrive, as a->0 or 0->a; voters answer once they have synced."""
        for way in ways or [None]:
            self._deliver(way, syncs=True)

    def take(self, way: str) -> None:
        """A voter takes a request, and has not synced yet."""
        self._deliver(way, syncs=False)

    def _deliver(self, way: str | None, *, syncs: bool) -> None:
        while (at := self._find(way)) is not None:
            message = self.world.network[at]
            self.world._deliver(at)
            if message.answer is None and self.world.voters[message.ask.broker_id].answering:
                if not syncs:
                    return
                self.world._sync(message.ask.broker_id)
            if way is not None:
                return
        assert way is None, f"nothing is on its way {way}"

    def _find(self, way: str | None) -> int | None:
        return next(
            (at for at, one in enumerate(self.world.network) if way in (None, _way(one))), None
        )

    def lose(self, *ways: str) -> None:
        """Messages get lost."""
        for way in ways:
            at = self._find(way)
            assert at is not None, f"nothing is on its way {way}"
            self.world._lose(at)

    def crash(self, voter: str) -> None:
        """A voter loses power, with what it had not synced."""
        self.world._crash(int(voter))

    def append(self, name: str) -> None:
        """A controller appends an entry."""
        self.world._append(CONTROLLERS.index(name))

    def leases(self) -> None:
        """The leases of all controllers run out."""
        self.world._leases_run_out()


def _way(message: Message) -> str:
    name, voter = CONTROLLERS[message.controller], message.ask.broker_id
    return f"{name}->{voter}" if message.answer is None else f"{voter}->{name}"


def _news(before: World, after: World) -> list[str]:
    """What is different after a command."""
    lines = []
    for at, (old, new) in enumerate(zip(before.voters, after.voters, strict=True)):
        copy, was = new.rules.copy, old.rules.copy
        promise = (copy.promised_epoch, copy.promised_controller)
        if promise != (was.promised_epoch, was.promised_controller):
            lines.append(f"voter {at} has promised epoch {promise[0]} to {promise[1]}")
        if copy.entries != was.entries:
            held = " ".join(f"{one.offset}@{one.epoch}" for one in copy.entries)
            lines.append(f"voter {at} holds {held}")
    for name, was_there, now in zip(
        CONTROLLERS, before.controllers, after.controllers, strict=True
    ):
        if now is not None:
            lines += [f"{name} {line}" for line in _of_controller(was_there, now)]
    for message in after.network:
        if message not in before.network:
            lines.append(f"{_way(message)}: {_text(message)}")
    return lines


def _of_controller(before: ControllerSide | None, now: ControllerSide) -> list[str]:
    rules = now.rules
    same = before is not None and before.attempt == now.attempt
    lines = []
    if not same or before is None or before.rules.role is not rules.role:
        match rules.role:
            case Role.LEADING:
                lines.append(f"leads in epoch {rules.epoch} from offset {rules.log.next_offset}")
            case Role.OVER:
                lines.append(f"gives up: {rules.failure}")
            case role:
                lines.append(f"is {role.name} for epoch {rules.epoch}")
    if rules.committed > (before.rules.committed if same and before is not None else 0):
        lines.append(f"knows that all below {rules.committed} counts")
    if rules.is_deposed and not (same and before is not None and before.rules.is_deposed):
        lines.append("is deposed")
    return lines


def _text(message: Message) -> str:
    match message.answer if message.answer is not None else message.ask.request:
        case NewEpoch(epoch=epoch):
            return f"promise me epoch {epoch}"
        case AskLog(offset=offset):
            return f"give me your log from {offset}"
        case VoterAppend(previous_offset=offset, previous_epoch=epoch, entries=entries):
            held = " ".join(f"{one.offset}@{one.epoch}" for one in entries) or "nothing"
            return f"append {held} behind {offset}, where epoch {epoch} ends"
        case VoterState(promised_epoch=epoch, next_offset=offset, last_epoch=last):
            return f"epoch {epoch} is promised; I have all below {offset}, the last of epoch {last}"
        case VoterAppended(matched=True, next_offset=offset):
            return f"synced up to {offset}"
        case VoterAppended(next_offset=offset):
            return f"we differ: try from {offset}"
        case Exception() as refused:
            return f"refused: {refused}"
        case other:
            return type(other).__name__
