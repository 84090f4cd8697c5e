"""The steps of replacing a secret: who must answer, and where an interrupted run resumes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from raylog.actors.names import broker_name
from raylog.actors.runtime import rotation
from raylog.actors.runtime.base import PeerLost
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.wire.errors import BrokerNotAvailable

OLD, NEW, LATER = b"o" * 32, b"n" * 32, b"l" * 32


@dataclass
class World:
    """Processes that read one store, and a command that may end at any of its steps."""

    stored: LinkSecrets = field(default_factory=lambda: LinkSecrets(OLD))
    processes: dict[str, LinkSecrets] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    steps_left: int = 100
    arrives: str = ""
    """A process that starts when the first is told."""

    def read(self) -> LinkSecrets:
        return self.stored

    def write(self, secrets: LinkSecrets) -> None:
        self._step()
        self.stored = secrets
        self._all_trust()

    async def names(self, prefix: str) -> set[str]:
        assert prefix == "c/"
        return set(self.processes)

    async def reread_secrets(self, name: str, timeout_ms: int) -> tuple[str, ...]:
        assert timeout_ms > 0
        if name in self.away or name not in self.processes:
            raise PeerLost("is gone")
        self._step()
        self.processes[name] = self.stored
        if self.arrives:
            arrived, self.arrives = self.arrives, ""
            self.processes[arrived] = LinkSecrets(OLD)
        self._all_trust()
        return self.stored.fingerprints

    def _step(self) -> None:
        if not self.steps_left:
            raise InterruptedError
        self.steps_left -= 1

    def _all_trust(self) -> None:
        """Whatever one process proves every other one accepts."""
        for one in self.processes.values():
            for other in self.processes.values():
                assert one.current in other.accepted

    def rotate(self, fresh: bytes = NEW) -> LinkSecrets:
        def know(prints: tuple[str, ...] | None) -> asyncio.Future[None]:
            return asyncio.ensure_future(rotation.all_know(self, "c", [0, 1], prints))

        return asyncio.run(rotation.rotate(self, know, fresh, lambda _: None))


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "ROUND_S", 0)


def world() -> World:
    names = [broker_name("c", 0), broker_name("c", 1), "c/replica/1/0"]
    return World(processes={name: LinkSecrets(OLD) for name in names})


def test_all_end_with_the_new_secret() -> None:
    own = world()
    assert own.rotate().accepted == (NEW,)
    assert {one.accepted for one in own.processes.values()} == {(NEW,)}


def test_a_run_that_another_one_has_overtaken_stores_nothing() -> None:
    own = world()

    async def know(_: tuple[str, ...] | None) -> None:
        own.stored = LinkSecrets(OLD, coming=LATER)

    with pytest.raises(BrokerNotAvailable, match="at the same time"):
        asyncio.run(rotation.rotate(own, know, NEW, lambda _: None))
    assert own.stored.accepted == (OLD, LATER)


@pytest.mark.parametrize("steps", range(15))
def test_a_run_that_was_interrupted_anywhere_is_finished_by_the_next(steps: int) -> None:
    own = world()
    own.steps_left = steps
    with pytest.raises(InterruptedError):
        own.rotate()
    own.steps_left = 100
    found = own.rotate(LATER).accepted
    assert found in ((NEW,), (LATER,))
    assert {one.accepted for one in own.processes.values()} == {found}


def test_a_broker_that_is_away_is_named_and_nothing_changes() -> None:
    own = world()
    own.away = {broker_name("c", 1)}
    with pytest.raises(BrokerNotAvailable, match="broker 1: is gone"):
        own.rotate()
    assert own.stored.accepted == (OLD,)


def test_a_broker_that_leaves_between_the_steps_holds_the_next_one_up() -> None:
    own = world()
    own.steps_left = 5  # all were asked, the first step is stored, one was told
    with pytest.raises(InterruptedError):
        own.rotate()
    own.away = {broker_name("c", 0)}
    own.steps_left = 100
    with pytest.raises(BrokerNotAvailable, match="broker 0"):
        own.rotate()
    assert own.stored.accepted == (OLD, NEW)
    own.away = set()
    assert own.rotate(LATER).accepted == (NEW,)


def test_a_process_that_starts_meanwhile_is_told_too() -> None:
    own = world()
    own.arrives = "c/replica/1/1"
    own.rotate()
    assert own.processes["c/replica/1/1"].accepted == (NEW,)


def test_another_process_that_is_gone_holds_nobody_up() -> None:
    own = world()
    own.away = {"c/replica/1/0"}
    with pytest.raises(BrokerNotAvailable, match="c/replica/1/0: is gone"):
        own.rotate()
    del own.processes["c/replica/1/0"]
    assert own.rotate().accepted == (NEW,)


def test_files_that_differ_between_machines_are_named() -> None:
    own = world()

    async def differs(name: str, timeout_ms: int) -> tuple[str, ...]:
        return (name,)

    own.reread_secrets = differs  # type: ignore[method-assign]  # machines of their own
    with pytest.raises(BrokerNotAvailable, match="processes read different secrets: "):
        asyncio.run(rotation.all_know(own, "c", [0, 1], None))
    with pytest.raises(BrokerNotAvailable, match="it reads another secret"):
        asyncio.run(rotation.all_know(own, "c", [0, 1], ("x",)))
