"""The process that leads a run: it creates topics, controls the load, and judges the result.

It is Locust's master, or the only process, and then a `Follower` as well. Locust starts and stops
users and carries messages. The course (`shapes`) says when.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.rpc.protocol import Message
from locust.runners import STATE_MISSING, MasterRunner
from locust.shape import LoadTestShape

from raylog.client import ClientError
from raylog.loadtest import messages
from raylog.loadtest.clocks import EVERY_S, ROUNDS, Exchange, OtherClock, clock_id
from raylog.loadtest.follower import findings_json, operations_json
from raylog.loadtest.histograms import added_up
from raylog.loadtest.jobs import Job, Progress, Report, Said, StrikeDue
from raylog.loadtest.local import Local
from raylog.loadtest.merged_reports import MergedReports
from raylog.loadtest.operations import END_TO_END, PRODUCE
from raylog.loadtest.results import Generator, Mark
from raylog.loadtest.scenario import Fault
from raylog.loadtest.shapes import Course, Effect, End, Judge, SetLoad, Strike, Tell
from raylog.loadtest.verdicts import Measured, step_held
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
LOOK_S = 0.2
"""How soon the leading process notices that the run must end."""
LEAD_S = 0.8
"""Time between the message that begins a run and its start. Users check every `LOOK_S`."""
PREPARED_S = 10.0
"""How long workers may take to report their time."""
_US_PER_S = 1_000_000
_SPAWN_RATE = 100.0
_PROGRESS_OVER_S = 3


class Broken(Exception):
    """The run is impossible or proves nothing. The message gives the reason."""


class Outlet(Protocol):
    """The channel on which the leading process reports."""

    def tell(self, what: Report) -> None:
        """Report to the process that started the run."""


class CourseShape(LoadTestShape):
    """The shape that Locust asks once a second for the number of users."""

    abstract = True

    def __init__(self, ask: Callable[[], tuple[int, float] | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Locust
        self._ask = ask

    def tick(self) -> tuple[int, float] | None:
        """The number of users and their rate, in Locust's terms. None ends the run."""
        return self._ask()


class Leader:
    """Leads one run."""

    def __init__(
        self, environment: Environment, job: Job, outlet: Outlet, *, ends_locust: bool = False
    ) -> None:
        """`ends_locust`: whether Locust's own command runs and must stop when the run is over."""
        self._environment = environment
        self._outlet = outlet
        self._ends_locust = ends_locust
        self.job = job
        self.names = Local(job.scenario, job.run, job.bootstrap, security=job.security)
        """Names and clock of the run. If the run has one process, its users have another
        `Local`."""
        self.clock = self.names.clock
        self.course = Course(job.scenario)
        self.merged_reports = MergedReports()
        self.marks: list[Mark] = []
        self.notes: list[str] = []
        self.failure: BaseException | None = None
        """The reason for an early end."""
        self.stopped: str | None = None
        """What ended the run early."""
        self.lag: Callable[[float], int | None] = lambda _: None
        """The lag of all groups together, if it was measured since the given second; else None."""
        self.before_users: Callable[[], None] = lambda: None
        """Creates the topics."""
        self.started_us: int | None = None
        self.started_at = ""
        self.ended_s = 0.0
        self._is_prepared = False
        self._has_ended = False
        self._striking: list[tuple[float, Fault]] = []
        """Current faults with the times when they were due."""
        self.over = Event()
        """Set when users must stop."""
        self._workers: list[str] = []
        self._done: set[str] = set()
        """Workers that have sent their last report."""
        self._clocks: defaultdict[str, OtherClock] = defaultdict(OtherClock)
        """By worker."""
        self._measuring: gevent.Greenlet | None = None
        self._writing = [
            one for one in job.scenario.users if one.kind in ("producer", "transactional")
        ]
        self._writing_rate = sum(one.rate for one in self._writing)

    def attach(self) -> None:
        """Let Locust run this. The runner must exist."""
        self._environment.shape_class = CourseShape(self._ask)
        self._environment.shape_class.runner = self._runner
        self._runner.register_message(messages.TIME, self._time_reported)
        self._runner.register_message(messages.REPORT, self._reported)
        self._runner.register_message(messages.TROUBLE, self._trouble_reported)
        events = self._environment.events
        events.spawning_complete.add_listener(self._begin)  # type: ignore[no-untyped-call]  # Locust

    @property
    def _runner(self) -> Any:
        return self._environment.runner

    @property
    def is_distributed(self) -> bool:
        """Whether other processes make the load."""
        return isinstance(self._runner, MasterRunner)

    @property
    def _is_ending(self) -> bool:
        return self._has_ended or self.failure is not None or self.stopped is not None

    def stop(self, why: str) -> None:
        """End the run at the next tick, with a result."""
        self.stopped = self.stopped or why

    def hurry(self, stop_s: float) -> None:
        """Give users, in workers too, little time to end."""
        if self._is_prepared:
            self._send(messages.HURRY, {"stop_s": stop_s})

    def fail(self, failure: BaseException) -> None:
        """End the run at the next tick, with a failure."""
        self.failure = self.failure or failure

    @property
    def at_s(self) -> float:
        """Seconds since the start; 0 before it."""
        if self.started_us is None:
            return 0.0
        return max(0.0, (self.clock.now_us() - self.started_us) / _US_PER_S)

    # ---- before the run ------------------------------------------------------------------

    def _prepare(self) -> None:
        """Prepare the run. All workers are connected, and no user has started."""
        self.before_users()
        self._workers = self._connected()
        for index, worker in enumerate(self._workers):
            self._send(messages.PREPARE, self._part(index), worker)
        self._measure()
        if self.is_distributed:
            self._measuring = gevent.spawn(self._measure_on)
        self._is_prepared = True

    def _connected(self) -> list[str]:
        """Worker ids in the order of their numbers, which is the dispatcher's."""
        if not self.is_distributed:
            return ["local"]
        return sorted(one.id for one in self._runner.clients.all if one.state != STATE_MISSING)

    def _part(self, index: int) -> dict[str, Any]:
        return {
            "scenario": self.job.scenario.model_dump_json(),
            "run": self.job.run,
            "bootstrap": self.job.bootstrap,
            "security": dict(self.job.security),
            "worker": index,
            "workers": len(self._workers),
        }

    def _begin(self, **_: object) -> None:
        """Start the run. All users are there and wait."""
        if self.started_us is not None or self.failure is not None:
            return
        self.started_us = self.clock.now_us() + round(LEAD_S * _US_PER_S)
        self.started_at = datetime.fromtimestamp(self.started_us / _US_PER_S, UTC).isoformat()
        effects = self.course.tick(0.0)
        factor = next(one.factor for one in effects if isinstance(one, SetLoad))
        self._send(messages.BEGIN, {"started_us": self.started_us, "factor": factor})
        self._outlet.tell(Said(text=f"run {self.job.run} has begun"))
        for effect in effects:
            self._carry_out(effect, 0.0)

    # ---- clocks --------------------------------------------------------------------------

    def _measure_on(self) -> None:
        """Send workers their clock offsets and measure again, in a loop."""
        while True:
            gevent.sleep(EVERY_S)
            self._tell_offsets()
            self._ask_times()

    def _measure(self) -> None:
        """Ask each worker for its time several times, and send it its clock offset."""
        for _ in range(ROUNDS):
            self._ask_times()
            gevent.sleep(0.01)
        with gevent.Timeout(PREPARED_S, False):
            while not set(self._workers) <= set(self._clocks):
                gevent.sleep(0.01)
        silent = [worker for worker in self._workers if worker not in self._clocks]
        if silent:
            raise Broken(f"worker {silent[0]} did not report its clock within {PREPARED_S:g} s")
        self._tell_offsets()

    def _ask_times(self) -> None:
        for worker in self._workers:
            self._send(messages.ASK_TIME, {"asked_us": self.clock.now_us()}, worker)
            gevent.sleep(0)

    def _tell_offsets(self) -> None:
        for worker in self._workers:
            offset = self._clocks[worker].at(self.clock.now_us())
            if offset is not None:
                report = {"offset_us": offset.offset_us, "uncertainty_us": offset.uncertainty_us}
                self._send(messages.OFFSET, report, worker)

    def _time_reported(self, msg: Message, **_: object) -> None:
        received_us = self.clock.now_us()
        report, clock = msg.data, self._clocks[msg.node_id]
        if report["clock_id"] is not None and report["clock_id"] == clock_id():
            clock.runs_with_ours(report["own_base_us"] - self.clock.own_base_us)
        else:
            clock.answered(Exchange(report["asked_us"], report["own_us"], received_us))

    # ---- during the run ------------------------------------------------------------------

    def _ask(self) -> tuple[int, float] | None:
        """The wanted number of users. An error is kept, because Locust would ask again after it."""
        try:
            if not self._is_ending:
                self._tick()
        except (Broken, ClientError, KafkaError, OSError) as failure:
            self.fail(failure)
        except Exception as mistake:
            log.exception("the run ends by a mistake of its own")
            self.fail(mistake)
        if not self._is_ending:
            return sum(one.count for one in self.job.scenario.users), _SPAWN_RATE
        self._end()
        if not self._ends_locust:
            Event().wait()  # the leading process lets Locust stop, which ends this greenlet
        return None

    def _tick(self) -> None:
        if not self._is_prepared:
            self._prepare()
        if self.started_us is None:
            return
        self._await_second()
        self._check_workers()
        at_s = self.at_s
        waiting: list[Effect] = self.course.tick(at_s)
        while waiting:
            effect = waiting.pop(0)
            if isinstance(effect, End):
                self._has_ended = True
                if effect.note is not None:
                    self.notes.append(effect.note)
                return
            waiting += self._carry_out(effect, at_s)
        self._outlet.tell(self.progress(at_s))

    def _await_second(self) -> None:
        """Wait for the start of the next second, or the end.

        Locust asks at any time in a second.
        """
        now_s = self.at_s
        until_s = math.floor(now_s) + 1.0
        if now_s < self.job.scenario.duration_s:
            until_s = min(until_s, self.job.scenario.duration_s)
        while self.at_s < until_s and not self._is_ending:
            gevent.sleep(min(until_s - self.at_s, LOOK_S))

    def _end(self) -> None:
        """Set the load to 0. Locust then stops the users."""
        if self.started_us is not None and not self.over.is_set():
            self.ended_s = min(self.at_s, self.job.scenario.duration_s)
            self._set_load(self.ended_s, 0.0)
        self.over.set()
        if self._measuring is not None:
            self._measuring.kill(block=False)
            self._measuring = None

    def _set_load(self, from_s: float, factor: float) -> None:
        assert self.started_us is not None, "the run has begun"
        at_us = self.started_us + round(from_s * _US_PER_S)
        self._send(messages.FACTOR, {"at_us": at_us, "factor": factor})

    def _carry_out(self, effect: Effect, at_s: float) -> list[Effect]:
        match effect:
            case SetLoad(factor):
                self._set_load(at_s, factor)
            case Strike(fault):
                self._striking.append((at_s, fault))
                self._outlet.tell(StrikeDue(fault=fault))
            case Tell(text):
                self.mark("load", text, at_s)
            case Judge(step):
                from_s, to_s = step.judged_from_s, step.ends_s
                measured = self.measured(from_s, to_s)
                held = step_held(self.job.scenario.thresholds, measured)
                per_s = measured.acknowledged_per_s
                verdict = "held" if held else "did not hold"
                self.mark("load", f"step {step.number + 1} {verdict}: {per_s:,.0f} records/s", at_s)
                return self.course.judged(step, held=held, records_per_s=per_s)
            case End():
                raise AssertionError("the tick ends the run")
        return []

    def collect(self, timeout_s: float) -> None:
        """Let workers stop their users, and wait for their last reports. Without one, fail."""
        if not self.is_distributed or not self._is_prepared:
            return
        self._send(messages.STOP, {})
        with gevent.Timeout(timeout_s, False):
            while set(self._workers) & set(self._connected()) - self._done:
                gevent.sleep(0.05)
        silent = [self._workers[number] for number in self.incomplete]
        if silent and self.stopped is None:
            self.fail(
                Broken(
                    f"{len(silent)} of {len(self._workers)} processes of the load did not send "
                    f"their last report: {', '.join(silent)}"
                )
            )

    def struck(self, text: str) -> None:
        """End the oldest current fault. Its mark is at the time when it began."""
        at_s, _ = self._striking.pop(0)
        self.mark("fault", text, at_s)

    def mark_unfinished(self) -> None:
        """Mark faults that last beyond the end of the run."""
        for at_s, fault in self._striking:
            self.mark("fault", f"{fault.kind}, which had not ended when the run ended", at_s)
        self._striking = []

    def mark(self, kind: Any, text: str, at_s: float | None = None) -> None:
        """Mark an event now or at a given time."""
        at_s = self.at_s if at_s is None else at_s
        self.marks.append(Mark(at_s=round(at_s, 3), kind=kind, text=text))
        self._outlet.tell(Said(text=f"{at_s:.0f} s: {text}"))

    def _check_workers(self) -> None:
        if not self.is_distributed:
            return
        lost = set(self._workers) - set(self._connected())
        if lost:
            raise Broken(
                f"{len(lost)} of {len(self._workers)} processes of the load are gone: "
                f"{', '.join(sorted(lost))}"
            )

    # ---- reports -------------------------------------------------------------------------

    def _reported(self, msg: Message, **_: object) -> None:
        report = msg.data
        generator = report["generator"]
        self.merged_reports.add(
            operations_json.validate_json(report["operations"]),
            report["ledger"],
            findings_json.validate_json(report["findings"]),
            None if generator is None else Generator.model_validate_json(generator),
        )
        self.merged_reports.receive(report["received"])
        if report["is_last"]:
            self._done.add(msg.node_id)

    def _trouble_reported(self, msg: Message, **_: object) -> None:
        self.fail(Broken(f"worker {msg.node_id}: {msg.data['text']}"))

    @property
    def incomplete(self) -> list[int]:
        """Numbers of workers that have begun and have not sent their last report."""
        if self.started_us is None:
            return []
        return [number for number, one in enumerate(self._workers) if one not in self._done]

    # ---- measurements --------------------------------------------------------------------

    def measured(self, from_s: float, to_s: float) -> Measured:
        """What the run measured in the seconds within a span, for thresholds."""
        first, end = math.ceil(from_s), math.floor(to_s)
        return Measured(
            operations=self.merged_reports.operations(first, end),
            seconds=max(0, end - first),
            acknowledged=self.merged_reports.counted(PRODUCE, first, end)[0],
            meant=self._writing_rate * self.course.meant(first, end),
            lag_records=self.lag(self.ended_s or from_s),
            writers=sum(one.count for one in self._writing),
        )

    def progress(self, at_s: float) -> Progress:
        """The progress over the last seconds."""
        operation = PRODUCE if self._writing_rate else END_TO_END
        end = int(at_s)
        first = max(0, end - _PROGRESS_OVER_S)
        found = self.merged_reports.operations(first, end)
        one = found.get(operation)
        intervals = [] if one is None else one.intervals
        latencies = added_up(each.latencies for each in intervals if each.requests)
        requests = sum(each.requests for each in intervals)
        return Progress(
            at_s=round(at_s, 1),
            of_s=self.job.scenario.duration_s,
            operation=operation,
            per_s=requests / max(1, end - first),
            p99_ms=latencies.get_value_at_percentile(99) / 1000 if requests else None,
            errors=sum(sum(each.errors.values()) for each in found.values()),
            lag=self.lag(0.0),
        )

    def _send(self, name: str, data: dict[str, Any], worker: str | None = None) -> None:
        if self.is_distributed:
            self._runner.send_message(name, data, worker)
        else:
            self._runner.send_message(name, data)
