"""Runs one load test from its topics to its result, in the leading process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gevent
from locust import User
from locust.env import Environment
from locust.runners import WorkerRunner

from raylog.cli.metrics_listeners import find_metrics_listeners
from raylog.client import Admin, ClientError, TopicPartition
from raylog.client.setting_parsing import client_only
from raylog.loadtest import topics
from raylog.loadtest.audit import AuditFailed, RunAudit
from raylog.loadtest.broker_metrics import EVERY_S as METRICS_EVERY_S
from raylog.loadtest.broker_metrics import BrokerMetrics
from raylog.loadtest.build_result import result_of, unread
from raylog.loadtest.dispatching import EvenDispatcher
from raylog.loadtest.follower import Follower
from raylog.loadtest.jobs import Job, Said, TopicsMade, TopicsRemoved
from raylog.loadtest.lags import LagWatch
from raylog.loadtest.leader import LOOK_S, Broken, Leader, Outlet
from raylog.loadtest.local import Local
from raylog.loadtest.missing_records import as_failures, readers, unreceived
from raylog.loadtest.operations import END_TO_END
from raylog.loadtest.results import Audit, Result, Target
from raylog.loadtest.scenario import GroupUsers, ProducerUsers, Scenario, TransactionalUsers
from raylog.loadtest.targets import target_of
from raylog.loadtest.users import user_classes
from raylog.loadtest.users.base import STOP_TIMEOUT_S
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
WRITERS = (ProducerUsers, TransactionalUsers)
_ERRORS = (AuditFailed, ClientError, KafkaError, OSError)
LAG_EVERY_S = 2.0
LAG_LAST_S = 10.0
"""How long to retry the last measurement of the lag."""
LAG_RETRY_S = 0.5
GROUPS_S = 8.0
"""How long to wait for groups to be empty."""
SETTLE_EVERY_S = 5.0
"""How often an audit that follows the log settles."""
_STOP_S = STOP_TIMEOUT_S + 5.0
"""How long Locust waits for users before it ends them."""
_REPORT_S = 2 * _STOP_S
"""How long workers may take for their last reports. Users that Locust ends close their clients."""
HURRY_S = 2.0
"""How long users may take to end after an interruption."""
_BROKEN_STOP_S = 5.0
"""The same after the loss of a process, which will not answer."""


def users_of(scenario: Scenario) -> list[type[User]]:
    """The classes of a scenario's users. What they share is set when the run is known."""
    return user_classes(Local(scenario, "none", ""))


def new_environment(scenario: Scenario) -> Environment:
    """A Locust environment for a process of a run."""
    environment = Environment(user_classes=users_of(scenario))
    set_up(environment)
    return environment


def set_up(environment: Environment) -> None:
    """Adapt how Locust starts and stops users."""
    environment.dispatcher_class = EvenDispatcher  # type: ignore[assignment]  # it has all that Locust calls
    environment.stop_timeout = _STOP_S


def follow(environment: Environment, scenario: Scenario) -> None:
    """Let a process take part in the run that it is told of. The runner must exist."""

    def began(local: Local) -> None:
        for one in environment.user_classes:
            one.local = local  # type: ignore[attr-defined]  # they are all LoadUsers

    Follower(environment, scenario, began).attach()


class Run:
    """Leads one run in this process."""

    def __init__(
        self, environment: Environment, job: Job, outlet: Outlet, *, ends_locust: bool = False
    ) -> None:
        self._environment = environment
        self._job = job
        self._outlet = outlet
        self.leader = Leader(environment, job, outlet, ends_locust=ends_locust)
        self.leader.before_users = self._prepare
        self._settings: dict[str, Any] = {**job.security, "bootstrap.servers": job.bootstrap}
        self._target: Target | None = None
        self._lags: LagWatch | None = None
        self._metrics = BrokerMetrics({})
        self._audit: RunAudit | None = None
        self._beside: list[gevent.Greenlet] = []
        """Background tasks during the load."""
        self._following: gevent.Greenlet | None = None
        """Reads the log during the run."""
        self._has_topics = False

    def attach(self) -> None:
        """Let Locust make the run. A process without workers makes the load as well."""
        if not isinstance(self._environment.runner, WorkerRunner):
            self.leader.attach()
        if not self.leader.is_distributed:
            follow(self._environment, self._job.scenario)

    # ---- before the run ------------------------------------------------------------------

    def _prepare(self) -> None:
        names = self.leader.names
        with Admin(self._settings) as admin:
            self._target = target_of(admin, self._job.bootstrap, self._job.target)
            self._has_topics = True
            if not self._job.keep_topics:
                self._outlet.tell(TopicsMade(names=topics.names(names)))
            topics.make(admin, names, self._target.brokers)
        if topics.groups(names):
            self._lags = LagWatch(_read_by_groups(names))
            self.leader.lag = self._lags.total
            self._begin_beside("reading the lag", self._watch)
        self._metrics = BrokerMetrics(find_metrics_listeners(client_only(self._settings, {})))
        if self._metrics.listeners:
            self._begin_beside("reading metrics", self._scrape)
        if self._job.scenario.audit == "during":
            self._following = self._begin_beside("reading records back", self._follow_log)

    def _begin_beside(self, what: str, work: Callable[[], None]) -> gevent.Greenlet:
        """Start a background task. Its failure ends the run at once."""

        def failed(beside: gevent.Greenlet) -> None:
            failure = beside.exception
            self.leader.fail(Broken(f"{what} failed: {type(failure).__name__}: {failure}"))

        beside = gevent.spawn(work)
        beside.link_exception(failed)
        self._beside.append(beside)
        return beside

    def _watch(self) -> None:
        """Measure the lag repeatedly until the run is over."""
        assert self._lags is not None, "there are groups"
        with Admin(self._settings) as admin:
            while not self.leader.over.is_set():
                self.leader.over.wait(LAG_EVERY_S)
                if self.leader.started_us is not None:
                    self._lags.look(admin, self.leader.at_s)

    def _scrape(self) -> None:
        """Scrape the brokers at the start and repeatedly until the run is over."""
        leader = self.leader
        while not leader.over.is_set():
            if leader.started_us is None:
                leader.over.wait(LOOK_S)
                continue
            self._metrics.look(leader.at_s)
            leader.over.wait(METRICS_EVERY_S)

    # ---- during the run ------------------------------------------------------------------

    def hurry(self, why: str) -> None:
        """End the run at once. Users have little time to wait for answers."""
        self._environment.stop_timeout = HURRY_S
        self.leader.hurry(HURRY_S)
        self.leader.stop(why)

    def struck(self, text: str, *, failed: bool) -> None:
        """Note the outcome of a fault. A failed one makes the run invalid."""
        self.leader.struck(text)
        if failed:
            self.leader.fail(Broken(text))

    # ---- after the run -------------------------------------------------------------------

    def finish(self) -> Result:
        """Compare, judge and clean up after the load. Raises the reason if the run never began."""
        leader = self.leader
        try:
            leader.collect(_REPORT_S if leader.failure is None else _BROKEN_STOP_S)
            gevent.joinall(self._beside, timeout=_STOP_S)
            gevent.killall(self._beside, timeout=_BROKEN_STOP_S)  # only one may read the log
            if leader.started_us is None or self._target is None:
                raise leader.failure or Broken(f"{leader.stopped} before the run began")
            leader.mark_unfinished()
            self._look_last()
            audit = self._audited()
        finally:
            self._tidy_up()
        lags = [] if self._lags is None else self._lags.gauges()
        return result_of(leader, self._target, audit, [*lags, *self._metrics.gauges()])

    def _look_last(self) -> None:
        """Measure the lag once more, after members have committed what they read."""
        leader = self.leader
        if self._lags is None or leader.stopped is not None or leader.failure is not None:
            return
        deadline = time.monotonic() + LAG_LAST_S
        with Admin(self._settings) as admin:
            while failed := self._lags.look(admin, leader.at_s):
                if time.monotonic() > deadline:
                    leader.notes += [
                        f"the final lag of group {group} is not known: {failure}"
                        for group, failure in failed.items()
                    ]
                    return
                gevent.sleep(LAG_RETRY_S)

    # ---- audit ---------------------------------------------------------------------------

    def _new_audit(self) -> RunAudit:
        names = self.leader.names
        written = sorted(
            {names.topic(one.topic) for one in self._job.scenario.users if isinstance(one, WRITERS)}
        )
        return RunAudit(self._settings, self._job.run, written)

    def _follow_log(self) -> None:
        """Read the log while it grows, until the run is over."""
        audit = self._audit = self._new_audit()
        settled_s = 0.0
        while not self.leader.over.is_set():
            self._hand_over(audit)
            try:
                audit.step()
            except _ERRORS as failure:
                log.warning("the audit continues after: %s", failure)
                gevent.sleep(1.0)
            if self.leader.at_s >= settled_s + SETTLE_EVERY_S:
                settled_s = self.leader.at_s
                audit.settle()

    def _hand_over(self, audit: RunAudit) -> None:
        """Give new ledgers to an audit."""
        audit.started_us = self.leader.started_us or 0
        ledgers, self.leader.merged_reports.ledgers = self.leader.merged_reports.ledgers, []
        for one in ledgers:
            audit.add(one)

    def _audited(self) -> Audit:
        """Compare the acknowledged records with the log; only in part if the run ended early."""
        leader = self.leader
        findings = leader.merged_reports.findings.result()
        if self._audit is None:
            if leader.stopped is not None:
                leader.notes.append("records were not read back, because the run ended early")
                return unread(leader.merged_reports.ledgers, findings)
            self._audit = self._new_audit()
        has_failed = self._following is not None and self._following.exception is not None
        with closing(self._audit) as audit:
            try:
                if not has_failed:
                    self._hand_over(audit)
                if leader.stopped is not None or has_failed:
                    leader.notes.append(
                        "not all records were read back, because the run ended early"
                    )
                    return audit.result(findings)
                audit.finish(leader.incomplete)
            except _ERRORS as failure:
                leader.fail(Broken(f"records could not be read back: {failure}"))
            else:
                self._count_unreceived(audit)
            return audit.result(findings)

    def _count_unreceived(self, audit: RunAudit) -> None:
        """Count records that readers did not receive as failures, unless a worker was lost."""
        leader = self.leader
        if leader.incomplete:
            return
        of_readers, name_of = readers(self._job.scenario), leader.names.topic
        received, written = leader.merged_reports.received, audit.written()
        seconds = unreceived(of_readers, received, written, name_of, leader.ended_s)
        if seconds:
            leader.merged_reports.add([as_failures(END_TO_END, seconds)], b"", [], None)

    def _tidy_up(self) -> None:
        if not self._has_topics or self._job.keep_topics:
            return
        try:
            with Admin(self._settings) as admin:
                left = topics.remove(
                    admin, self.leader.names, 0.0 if self.leader.stopped else GROUPS_S
                )
        except (ClientError, KafkaError) as failure:
            left = [f"{', '.join(topics.names(self.leader.names))}: {failure}"]
        lines = [f"not deleted: {one}" for one in left]
        if left:
            servers = self._job.bootstrap
            lines.append(f"Delete topics with: raylog topics delete TOPIC --bootstrap {servers}")
        self.leader.notes += lines
        if self.leader.started_us is None:  # there will be no result
            for one in lines:
                self._outlet.tell(Said(text=one))
        self._outlet.tell(TopicsRemoved())


def _read_by_groups(names: Local) -> dict[str, list[TopicPartition]]:
    """The partitions that each group reads."""
    read: dict[str, list[TopicPartition]] = {}
    for users in names.scenario.users:
        if isinstance(users, GroupUsers):
            partitions = names.scenario.topics[users.topic].partitions
            keys = [TopicPartition(names.topic(users.topic), one) for one in range(partitions)]
            group = names.group(users.group)
            read[group] = sorted({*read.get(group, ()), *keys})
    return read
