"""The clients of `client_kills`: producers, and a group for each way to consume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.checker.promises import Order, Promise
from tests.cluster.client_kills_client import Commit, Role

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
CLASSIC = {
    "session_timeout_ms": SESSION_TIMEOUT_MS,
    "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
}
EAGER = {**CLASSIC, "partition_assignment_strategy": "range"}
COOPERATIVE = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}
KIP_848 = {"group_protocol": "consumer"}
QUICK = {"auto_commit_interval_ms": 500}


@dataclass(frozen=True, slots=True)
class Team:
    """Clients of one kind: the members of a group, or producers."""

    name: str
    role: Role
    promise: Promise | None = None
    """None: it is no group."""
    order: Order = Order.NONE
    commit: Commit = Commit.SYNC
    settings: dict[str, Any] = field(default_factory=dict)
    is_static: bool = False
    members: int = 2
    spare: int = 1
    """Members that come and go."""

    @property
    def is_group(self) -> bool:
        """Whether it consumes."""
        return self.promise is not None

    @property
    def sink(self) -> str:
        """The topic that it writes to; "" if none."""
        return f"sink-{self.name}" if self.promise is Promise.EXACTLY_ONCE else ""


def _at_least_once(name: str, commit: Commit, settings: dict[str, Any], **more: Any) -> Team:
    return Team(
        name,
        Role.PROCESS_THEN_COMMIT,
        Promise.AT_LEAST_ONCE,
        Order.PARTITION,
        commit,
        settings,
        **more,
    )


def _at_most_once(name: str, settings: dict[str, Any]) -> Team:
    return Team(name, Role.COMMIT_THEN_PROCESS, Promise.AT_MOST_ONCE, settings=settings)


def _exactly_once(name: str, role: Role, order: Order, settings: dict[str, Any]) -> Team:
    return Team(name, role, Promise.EXACTLY_ONCE, order, settings=settings)


TEAMS = [
    Team("producers", Role.PRODUCER, spare=0),
    _at_least_once("eager-sync", Commit.SYNC, EAGER),
    _at_least_once("cooperative-auto", Commit.AUTO, {**COOPERATIVE, **QUICK}),
    _at_least_once("static-async", Commit.ASYNC, EAGER, is_static=True),
    _at_least_once("848-async", Commit.ASYNC, KIP_848),
    _at_least_once("848-auto", Commit.AUTO, {**KIP_848, **QUICK}),
    Team("parallel", Role.PARALLEL, Promise.AT_LEAST_ONCE, Order.KEY, settings=CLASSIC),
    _at_most_once("once-cooperative", COOPERATIVE),
    _at_most_once("once-848", KIP_848),
    _exactly_once("copiers", Role.COPIER, Order.PARTITION, EAGER),
    _exactly_once("copiers-848", Role.COPIER, Order.PARTITION, KIP_848),
    _exactly_once("eos", Role.EOS_PROCESS, Order.KEY, CLASSIC),
]
GROUPS = [team for team in TEAMS if team.is_group]
