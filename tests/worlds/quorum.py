"""Three voters and two controllers of the metadata log, as a state to search.

The rules are the real ones. Everything around them is a choice: which message arrives next, which
one is lost, duplicated or arrives after its sender gave up, which voter loses power before or after
a sync, when a controller starts over. A budget bounds how often each may happen; `search` tries all
orders.

Discovering the voters is one step, in which any majority reports its state. As with any message,
that state may be stale when it is used.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from typing import Any, NamedTuple

from raylog.actors.broker.rules.voter import VoterRules
from raylog.actors.controller.rules.quorum import Ask, AskLog, AskState, QuorumRules, Ready, Role
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.log_copy import Append, LogCopy, Promise
from raylog.actors.metadata.voting import NewEpoch, VoterAppend, VoterLog
from raylog.actors.runtime.base import PeerTimeout
from raylog.wire.errors import KafkaError

VOTERS = ((0, "d0"), (1, "d1"), (2, "d2"))
CONTROLLERS = ("a", "b")
HEARTBEAT_MS = 500
LEASE_MS = 2_000
MAJORITIES = (*combinations(range(3), 2), (0, 1, 2))
"""The sets of voters that a controller may see."""
ALIKE = ((0, 1), (0, 1, 2))
"""Those of them that differ while all voters are alike."""
NOBODY = PeerTimeout("nobody has answered")


class Violation(Exception):
    """An invariant is broken."""


class Budget(NamedTuple):
    """How often each kind of choice may still happen."""

    terms: int = 2
    entries: int = 2
    crashes: int = 1
    lost: int = 1
    late: int = 1
    twice: int = 0
    leases: int = 0
    """How often all controllers' leases expire."""


class Message(NamedTuple):
    """A message between a controller and a voter."""

    controller: int
    attempt: int
    """The controller's attempt; another attempt ignores the answer."""
    ask: Ask
    answer: Any = None
    """None while the request is on its way to the voter."""


@dataclass(slots=True)
class VoterSide:
    """A voter, and the part of its log copy that is on disk."""

    rules: VoterRules
    durable: LogCopy
    answering: Message | None = None
    """The answer that is sent once the disk has synced."""

    def clone(self) -> VoterSide:
        rules = copy.copy(self.rules)
        rules.copy = clone_of(rules.copy)
        return VoterSide(rules, clone_of(self.durable), self.answering)


@dataclass(slots=True)
class ControllerSide:
    """A controller's attempt to lead."""

    rules: QuorumRules
    attempt: int
    led: bool = False

    def clone(self) -> ControllerSide:
        rules = copy.copy(self.rules)
        rules.log = clone_of(rules.log)
        rules._waiting = set(rules._waiting)
        rules._promised = list(rules._promised)
        rules._followers = {key: copy.copy(one) for key, one in rules._followers.items()}
        return ControllerSide(rules, self.attempt, self.led)


@dataclass(slots=True)
class World:
    """A state of the search."""

    voters: list[VoterSide]
    controllers: list[ControllerSide | None]
    network: list[Message] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    now_ms: float = 0.0
    given_out: tuple[bytes, ...] = ()
    """The records that some controller saw as committed, by offset."""
    given_in: tuple[int, ...] = ()
    """The epochs of the controllers that committed them."""
    epochs: frozenset[int] = frozenset()
    """The epochs that were won."""
    sees: tuple[tuple[int, ...], ...] = MAJORITIES
    """The sets of voters that a controller may see when it discovers them."""
    syncs: bool = True
    """If False, voters answer before their disks hold what they confirm."""
    trace: tuple[str, ...] = ()
    """The steps that led to this state."""

    def clone(self) -> World:
        """Return a shallow copy; a voter or controller is cloned before it changes."""
        return replace(
            self,
            voters=list(self.voters),
            controllers=list(self.controllers),
            network=list(self.network),
        )

    def _voter(self, at: int) -> VoterSide:
        voter = self.voters[at] = self.voters[at].clone()
        return voter

    def _controller(self, at: int) -> ControllerSide:
        controller = self.controllers[at]
        assert controller is not None, "it has begun"
        controller = self.controllers[at] = controller.clone()
        return controller

    # ---- what may happen -----------------------------------------------------------------

    def successors(self) -> Iterator[World]:
        """Yield all states that are one step away."""
        yield from self._of_the_network()
        yield from self._of_voters()
        yield from self._of_controllers()
        if self.budget.leases:
            yield self._step("leases run out", World._leases_run_out)

    def _of_the_network(self) -> Iterator[World]:
        for at, message in enumerate(self.network):
            if message.answer is not None or not self.voters[message.ask.broker_id].answering:
                yield self._step(f"deliver {_label(message)}", World._deliver, at)
            if self.budget.lost:
                yield self._step(f"lose {_label(message)}", World._lose, at)
            if self.budget.twice:
                yield self._step(f"double {_label(message)}", World._double, at)
            if self.budget.late and message.answer is None:
                yield self._step(f"give up on {_label(message)}", World._give_up, at)

    def _of_voters(self) -> Iterator[World]:
        for at, voter in enumerate(self.voters):
            if voter.answering is not None:
                yield self._step(f"{at} syncs", World._sync, at)
            if self.budget.crashes:
                yield self._step(f"{at} loses power and what it had not synced", World._crash, at)
                if voter.answering is not None:
                    yield self._step(f"{at} loses power", World._crash, at, True)

    def _of_controllers(self) -> Iterator[World]:
        for at, controller in enumerate(self.controllers):
            name = CONTROLLERS[at]
            if self.budget.terms:
                for seen in self.sees:
                    if self._is_even and seen not in ALIKE:
                        continue
                    yield self._step(f"{name} begins and sees {seen}", World._begin, at, seen)
            if controller is not None and controller.rules.role is Role.LEADING:
                idle = controller.rules.committed == controller.rules.log.next_offset
                if self.budget.entries and (idle or not controller.led):
                    yield self._step(f"{name} appends", World._append, at)

    @property
    def _is_even(self) -> bool:
        """Whether the voters are still alike."""
        return self.controllers == [None, None]

    def _step(self, label: str, step: Callable[..., None], *args: object) -> World:
        after = self.clone()
        after.trace = (*self.trace, label)
        step(after, *args)
        after.check()
        return after

    def _spend(self, what: str) -> None:
        self.budget = self.budget._replace(**{what: getattr(self.budget, what) - 1})

    def _deliver(self, at: int) -> None:
        message = self.network.pop(at)
        if message.answer is not None:
            self._to_controller(message)
        else:
            self._to_voter(message)

    def _lose(self, at: int) -> None:
        self._spend("lost")
        message = self.network.pop(at)
        self._to_controller(message._replace(answer=NOBODY))

    def _give_up(self, at: int) -> None:
        """Stop waiting for a request, which still arrives later; its answer is ignored."""
        self._spend("late")
        message = self.network[at]
        self.network[at] = message._replace(attempt=-1)
        self._to_controller(message._replace(answer=NOBODY))

    def _double(self, at: int) -> None:
        """Duplicate a message; only one of the answers is accepted."""
        self._spend("twice")
        self.network.append(self.network[at]._replace(attempt=-1))

    def _to_voter(self, message: Message) -> None:
        voter, request = self._voter(message.ask.broker_id), message.ask.request
        try:
            match request:
                case AskLog():
                    answer = voter.rules.fetch(*request)
                    self._send(message._replace(answer=answer))
                    return
                case NewEpoch():
                    ready = voter.rules.new_epoch(request, self.now_ms)
                case VoterAppend():
                    ready = voter.rules.append(request, self.now_ms)
                case _:
                    raise AssertionError(request)
        except KafkaError as refused:
            self._send(message._replace(answer=refused))
            return
        for change in ready.changes:
            voter.rules.copy.apply(change)
        voter.answering = message._replace(answer=ready.answer)
        if not self.syncs:
            self._send(voter.answering)
            voter.answering = None
        elif not self.budget.crashes:
            self._sync(message.ask.broker_id)  # no observer could tell it from a later sync

    def _send(self, message: Message) -> None:
        if message.attempt >= 0:
            self.network.append(message)

    def _sync(self, at: int) -> None:
        voter = self._voter(at)
        assert voter.answering is not None
        voter.durable = clone_of(voter.rules.copy)
        self._send(voter.answering)
        voter.answering = None

    def _crash(self, at: int, written: bool = False) -> None:
        """Restart a voter, with what it had synced or, if `written`, all that it had written."""
        self._spend("crashes")
        voter = self.voters[at]
        kept = clone_of(voter.rules.copy if written else voter.durable)
        self.voters[at] = VoterSide(voter_rules(at, kept, self.now_ms), clone_of(kept))
        for message in [voter.answering, *self.network]:
            if message is not None and message.ask.broker_id == at and message.answer is None:
                self.network.remove(message)
                self._to_controller(message._replace(answer=NOBODY))
        if voter.answering is not None and voter.answering.attempt >= 0:
            self._to_controller(voter.answering._replace(answer=NOBODY))

    def _to_controller(self, message: Message) -> None:
        there = self.controllers[message.controller]
        if there is None or there.attempt != message.attempt:
            return
        rules, answer = self._controller(message.controller).rules, message.answer
        if isinstance(answer, Exception):
            ready = rules.failed(message.ask, answer, self.now_ms)
        else:
            ready = rules.answered(message.ask, answer, self.now_ms)
        self._carry_out(message.controller, ready)

    def _begin(self, at: int, seen: tuple[int, ...]) -> None:
        self._spend("terms")
        before = self.controllers[at]
        attempt = 0 if before is None else before.attempt + 1
        rules = QuorumRules("c", range(len(VOTERS)), CONTROLLERS[at])
        self.controllers[at] = ControllerSide(rules, attempt)
        self._abandon(at)
        ready = rules.begin(self.now_ms)
        for ask in ready.asks:
            assert isinstance(ask.request, AskState)
            if ask.broker_id in seen:
                ready = rules.answered(ask, self.voters[ask.broker_id].rules.state(), self.now_ms)
            else:
                ready = rules.failed(ask, NOBODY, self.now_ms)
        self._carry_out(at, ready)

    def _abandon(self, at: int) -> None:
        """Ignore the answers to a controller's requests; the requests still arrive."""
        self.network = [
            one if one.controller != at else one._replace(attempt=-1)
            for one in self.network
            if one.controller != at or one.answer is None
        ]

    def _append(self, at: int) -> None:
        self._spend("entries")
        controller = self._controller(at)
        controller.led = True
        rules = controller.rules
        record = b"%s%d" % (CONTROLLERS[at].encode(), rules.epoch)
        entry = LogEntry(rules.log.next_offset, rules.epoch, (record,))
        self._carry_out(at, rules.append([entry], self.now_ms))

    def _leases_run_out(self) -> None:
        self._spend("leases")
        self.now_ms += LEASE_MS

    def _carry_out(self, at: int, ready: Ready) -> None:
        controller = self.controllers[at]
        assert controller is not None
        if controller.rules.role is Role.OVER:
            self._abandon(at)
        for ask in ready.asks:
            self.network.append(Message(at, controller.attempt, ask))

    # ---- what must hold ------------------------------------------------------------------

    def check(self) -> None:
        """Raise Violation if a committed record is lost or two controllers share an epoch."""
        for controller in self.controllers:
            if controller is None or controller.rules.role is not Role.LEADING:
                continue
            rules, log = controller.rules, tuple(controller.rules.log.records())
            committed = log[: rules.committed]
            shared = min(len(committed), len(self.given_out))
            if committed[:shared] != self.given_out[:shared]:
                raise Violation(f"{committed} counts where {self.given_out} did: {self.trace}")
            if len(committed) > len(self.given_out):
                self.given_in += (rules.epoch,) * (len(committed) - shared)
                self.given_out = committed
                self._check_majority()
        self._check_terms()

    def _check_terms(self) -> None:
        """Check that each new leader has all earlier commits, and its epoch alone."""
        leading = [
            one.rules
            for one in self.controllers
            if one is not None and one.rules.role is Role.LEADING
        ]
        if len({rules.epoch for rules in leading}) < len(leading):
            raise Violation(f"two controllers have one epoch: {self.trace}")
        for rules in leading:
            if rules.epoch not in self.epochs:
                self.epochs |= {rules.epoch}
                log = tuple(rules.log.records())
                before = sum(epoch < rules.epoch for epoch in self.given_in)
                if log[:before] != self.given_out[:before]:
                    raise Violation(f"{self.given_out} is not all in {log}: {self.trace}")

    def _check_majority(self) -> None:
        """Check that committed records are on the disks of a majority."""
        holders = sum(
            tuple(voter.durable.records()[: len(self.given_out)]) == self.given_out
            for voter in self.voters
        )
        if 2 * holders <= len(self.voters):
            raise Violation(f"{holders} disks hold {self.given_out}: {self.trace}")

    # ---- telling states apart ------------------------------------------------------------

    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for states with the same possible futures."""
        numbers = {one.ask.number for one in self.network}
        numbers |= {one.answering.ask.number for one in self.voters if one.answering is not None}
        rank = {number: at for at, number in enumerate(sorted(numbers))}

        def message(one: Message | None) -> int:
            if one is None:
                return 0
            asked = one.ask
            what = (asked.broker_id, _essence(asked.request), rank[asked.number])
            return hash((one.controller, one.attempt, *what, _essence(one.answer)))

        return (
            tuple(
                (
                    _copied(one.rules.copy),
                    _copied(one.durable),
                    message(one.answering),
                    one.rules._contact,
                )
                for one in self.voters
            ),
            tuple(
                None if one is None else self._controller_key(one, rank) for one in self.controllers
            ),
            tuple(sorted(map(message, self.network))),
            self.budget,
            self.now_ms,
            self.given_out,
        )

    def _controller_key(self, one: ControllerSide, rank: dict[int, int]) -> object:
        rules = one.rules
        followers = tuple(
            (
                each.key,
                each.next_offset,
                each.synced_offset,
                rank.get(each.busy, -1),
                each.failure is None,
            )
            for each in rules._followers.values()
        )
        return (
            rules.role,
            rules.epoch,
            _copied(rules.log),
            rules.committed,
            rules.is_deposed,
            tuple(sorted(rules._waiting)),
            tuple(rules._promised),
            rank.get(rules._number, -1),
            followers,
            one.led,
            one.attempt,
        )


def clone_of(log: LogCopy) -> LogCopy:
    """Return a clone of a voter's or controller's log copy."""
    other = copy.copy(log)
    other.entries, other._named = list(log.entries), list(log._named)
    return other


def _copied(log: LogCopy) -> tuple[object, ...]:
    return log.promised_epoch, log.promised_controller, tuple(log.entries)


def _essence(message: Any) -> object:
    """Return the contents of a request or an answer that tell it from others."""
    match message:
        case VoterAppend(epoch, previous_epoch, previous_offset, entries):
            return epoch, previous_epoch, previous_offset, tuple(entries)
        case VoterLog(entries=entries):
            return "log", tuple(entries)
        case Exception():
            return type(message).__name__
        case _:
            return message


def _label(message: Message) -> str:
    name = CONTROLLERS[message.controller]
    voter, request = message.ask.broker_id, type(message.ask.request).__name__
    if message.answer is None:
        return f"{request} {name}->{voter}"
    return f"{type(message.answer).__name__} {voter}->{name}"


def voter_rules(at: int, log: LogCopy, now_ms: float) -> VoterRules:
    """Return a voter that has just started with a log copy."""
    broker_id, directory_id = VOTERS[at]
    return VoterRules(
        broker_id,
        directory_id,
        VOTERS,
        log,
        heartbeat_interval_ms=HEARTBEAT_MS,
        now_ms=now_ms,
    )


def founded(budget: Budget, sees: tuple[tuple[int, ...], ...] = MAJORITIES) -> World:
    """Return a cluster whose first controller wrote one entry and is gone."""
    log = LogCopy()
    log.apply(Promise(1, "founder"))
    log.apply(Append((LogEntry(0, 1, (b"founded",)),)))
    voters = [VoterSide(voter_rules(at, clone_of(log), 0.0), clone_of(log)) for at in range(3)]
    return World(
        voters, [None, None], budget=budget, given_out=(b"founded",), given_in=(1,), sees=sees
    )


def differing(budget: Budget, *epochs: int) -> World:
    """Return a founded cluster in which each voter has one more entry, of the epoch given for it.

    A voter with epoch 0 has none.
    """
    world = founded(budget)
    for voter, epoch in zip(world.voters, epochs, strict=True):
        log = voter.rules.copy
        log.apply(Promise(max(epochs), "gone"))
        if epoch:
            log.apply(Append((LogEntry(1, epoch, (b"left in %d" % epoch,)),)))
        voter.durable = clone_of(log)
    return world


def search(
    start: World, most: int, in_flight: int = 6, report: Callable[[str], object] = lambda _: None
) -> tuple[int, bool]:
    """Search all states reachable from `start`, breadth first; raise Violation.

    Return the number of states found, and whether these are all. Stop at `most` states, and skip
    states with more than `in_flight` messages.
    """
    seen = {hash(start.key())}
    ahead = [start]
    for steps in count(1):
        if not ahead:
            break
        report(f"{len(seen):,} states, {len(ahead):,} of them with {steps - 1} steps")
        found: list[World] = []
        for world in ahead:
            for after in world.successors():
                if len(after.network) > in_flight:
                    continue
                key = hash(after.key())
                if key not in seen:
                    seen.add(key)
                    found.append(after)
                    if len(seen) >= most:
                        return len(seen), False
        ahead = found
    return len(seen), True


def main() -> None:
    """Search a quorum in which everything may happen, as far as is asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--most", type=int, default=1_000_000, help="states")
    most = parser.parse_args().most
    budget = Budget(terms=3, entries=3, crashes=2, lost=1, late=1, twice=1, leases=2)
    states, is_whole = search(founded(budget), most, report=_say)
    _say(f"{states:,} states, {'which are all' if is_whole else 'and there are more'}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
