"""A process that makes load: it gets its part of the run from the leading process and reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gevent
from locust.env import Environment
from locust.rpc.protocol import Message
from pydantic import TypeAdapter

from raylog.loadtest import messages
from raylog.loadtest.clocks import clock_id
from raylog.loadtest.local import Local
from raylog.loadtest.results import Finding, Operation
from raylog.loadtest.scenario import Scenario

_US_PER_S = 1_000_000
REPORT_S = 1.0
_EARLY_S = 0.1
"""The tolerance for a timer that ends before its second does."""
_GENERATOR_EVERY = 10
"""Reports between two that contain this process's seconds, which grow with the run."""
operations_json = TypeAdapter(list[Operation])
findings_json = TypeAdapter(list[Finding])


class Follower:
    """The part of a run in one process."""

    def __init__(
        self, environment: Environment, scenario: Scenario, began: Callable[[Local], None]
    ) -> None:
        """`began` is called with the state shared by this process's users, before they start."""
        self._environment = environment
        self._scenario = scenario
        self._began = began
        self._reports = 0
        self._reporting: gevent.Greenlet | None = None
        self._local: Local | None = None
        self._has_reported_mistake = False

    def attach(self) -> None:
        """Register for messages. The runner must exist."""
        listeners: dict[str, Callable[..., object]] = {
            messages.ASK_TIME: self._tell_time,
            messages.OFFSET: self._set_offset,
            messages.PREPARE: self._prepare,
            messages.BEGIN: self._begin,
            messages.FACTOR: lambda msg, **_: self.local.load.change(
                msg.data["at_us"], msg.data["factor"]
            ),
            messages.HURRY: self._hurry,
            # At once. Locust's own message would wait for the time that users have to end.
            messages.STOP: lambda **_: self._runner.stop(),
        }
        for name, listener in listeners.items():
            self._runner.register_message(name, listener)
        events = self._environment.events
        events.test_stop.add_listener(self._finish)  # type: ignore[no-untyped-call]  # Locust
        events.user_error.add_listener(self._tell_mistake)  # type: ignore[no-untyped-call]  # Locust

    @property
    def _runner(self) -> Any:
        return self._environment.runner

    @property
    def local(self) -> Local:
        """The state shared by this process's users."""
        assert self._local is not None, "the leading process has told what to do"
        return self._local

    # ---- messages ------------------------------------------------------------------------

    def _tell_time(self, msg: Message, **_: object) -> None:
        clock = self.local.clock
        own_us = clock.now_us() + clock.offset_us
        answer = {
            "asked_us": msg.data["asked_us"],
            "own_us": own_us,
            "own_base_us": clock.own_base_us,
            "clock_id": clock_id(),
        }
        self._runner.send_message(messages.TIME, answer)

    def _set_offset(self, msg: Message, **_: object) -> None:
        self.local.clock.offset_us = msg.data["offset_us"]
        self.local.note_uncertainty(msg.data["uncertainty_us"])

    def _prepare(self, msg: Message, **_: object) -> None:
        given = msg.data
        if given["scenario"] != self._scenario.model_dump_json():
            text = (
                f"it has another scenario, {self._scenario.name}: give all processes the same "
                "scenario"
            )
            self._runner.send_message(messages.TROUBLE, {"text": text})
            return
        local = Local(
            self._scenario,
            given["run"],
            given["bootstrap"],
            worker=given["worker"],
            workers=given["workers"],
            security=given["security"],
        )
        local.recorder.locust = self._environment.stats
        self._local, self._reports, self._has_reported_mistake = local, 0, False
        self._began(local)

    def _begin(self, msg: Message, **_: object) -> None:
        local = self.local
        local.started_us = msg.data["started_us"]
        local.load.change(local.started_us, msg.data["factor"])
        self._reporting = gevent.spawn(self._report_on)

    def _hurry(self, msg: Message, **_: object) -> None:
        self._environment.stop_timeout = msg.data["stop_s"]

    def _tell_mistake(self, exception: Exception, **_: object) -> None:
        """Report a bug of a user. Locust would continue, but the run proves nothing any more."""
        if not self._has_reported_mistake:
            self._has_reported_mistake = True
            text = f"a user ended with {type(exception).__name__}: {exception}"
            self._runner.send_message(messages.TROUBLE, {"text": text})

    # ---- reports -------------------------------------------------------------------------

    def _report_on(self) -> None:
        """Report once a second."""
        local = self.local
        gevent.sleep(max(0.0, -local.at_s))
        local.generator.sample(local.at_s)
        while True:
            until_s = math.floor(local.at_s + _EARLY_S) + REPORT_S
            wait_s = until_s - local.at_s
            gevent.sleep(wait_s)
            late_s = max(0.0, local.at_s - until_s)
            local.generator.woke(int(wait_s * _US_PER_S), int(late_s * _US_PER_S))
            self._reports += 1
            self._report(is_last=False)

    def _report(self, *, is_last: bool) -> None:
        """Send what happened since the last report."""
        local = self.local
        local.generator.sample(local.at_s)
        generator = None
        if is_last or self._reports % _GENERATOR_EVERY == 1:
            generator = local.generator_result().model_dump_json()
        report = {
            "operations": operations_json.dump_json(local.recorder.take()),
            "ledger": local.ledger.take(),
            "findings": findings_json.dump_json(local.findings.take()),
            "received": [
                [*key, of.rows.tobytes()] for key, of in local.received.items() if is_last
            ],
            "generator": generator,
            "is_last": is_last,
        }
        self._runner.send_message(messages.REPORT, report)

    def _finish(self, **_: object) -> None:
        """Send the last report when users have stopped, before Locust says so."""
        if self._reporting is not None:
            self._reporting.kill()
            self._reporting = None
            self._report(is_last=True)
