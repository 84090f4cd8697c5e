"""What is killed in a streaming job, and when.

The moments are drawn from the number of rows that the reader will have seen, and from the time that
a batch takes. Half of the kills, also drawn, wait for an open transaction: tasks write for a small
part of a batch's time, and a kill does most harm then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from raylog.actors.names import TRANSACTION
from raylog.client import BlockingClient, ClientError, ClientSettings, parse_bootstrap
from raylog.wire.errors import KafkaError
from tests.cluster.faults_kinds import Scene, leader
from tests.copying.clients import coordinator_process
from tests.copying.ends import SinkReader
from tests.copying.judge import BatchJudge
from tests.copying.spark_application import Application, Blow

SINK_ID = "copying"
TRANSACTIONAL_ID = f"raylog-sink-{SINK_ID}"
NEW_QUERY, COORDINATOR = "application, new query", "coordinator"
VICTIMS = ("executor", "worker", "driver", "leader", COORDINATOR, "application", NEW_QUERY)
DEAR = ("driver", "application", NEW_QUERY)
"""Costly kills: RayDP takes most of a minute to start on two idle cores."""
IDLE = ("executor", "worker")
"""Kills that lose nothing before the application works: they wait for its first rows."""
ROUNDS = 4
LAST = 0.95
"""No kill waits for a row beyond this share of all."""
_OPEN_WAIT_S = 10.0
_OPEN_LOOK_S = 0.005
_ASK_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The job, and how many kills it gets."""

    rows: int
    kills: int
    job: str
    own_sink: bool
    batch_rows: int

    @property
    def victims(self) -> list[str]:
        """The kinds of kills that make sense for the job."""
        left_out = set() if self.own_sink else {COORDINATOR, NEW_QUERY}
        if self.job != "copy":
            left_out.add(NEW_QUERY)  # only the checkpoint has its state
        return [one for one in VICTIMS if one not in left_out]


@dataclass(frozen=True, slots=True)
class _Moment:
    """A planned kill."""

    rows: float
    """How many rows the reader must have seen."""
    kind: str
    is_in_transaction: bool


def _moments(plan: Plan, total: int, random: Random) -> list[_Moment]:
    """Return all kills, the first one last.

    Each kind comes once before any is repeated, up to `ROUNDS` times; cheap kinds follow.
    """
    deck: list[str] = []
    for _ in range(ROUNDS):
        deck += random.sample(plan.victims, len(plan.victims))
    cheap = [one for one in plan.victims if one not in DEAR]
    deck += random.choices(cheap, k=max(0, plan.kills - len(deck)))
    at = sorted(random.uniform(0, LAST * total) for _ in range(plan.kills))
    open_ones = [plan.own_sink and random.random() < 0.5 for _ in at]
    return [_Moment(*each) for each in zip(at, deck[: plan.kills], open_ones, strict=True)][::-1]


class Killer:
    """Kills processes at random moments."""

    def __init__(
        self,
        scene: Scene,
        application: Application,
        reader: SinkReader[BatchJudge],
        plan: Plan,
        say: Callable[[str], None],
    ) -> None:
        self.kills: Counter[str] = Counter()
        self.in_transaction: Counter[str] = Counter()
        """Kills that hit an open transaction."""
        self._scene, self._application, self._reader = scene, application, reader
        self._say = say
        self._next = _moments(plan, reader.judge.job.total, scene.random)
        self._not_before_s: float | None = None
        self._started_at = (0, 0)
        """The number of application starts, and the rows that the reader had seen then."""

    @property
    def left(self) -> int:
        """How many kills are left."""
        return len(self._next)

    def look(self) -> None:
        """Kill a process if it is time and there is one."""
        judge = self._reader.judge
        if not self._next or judge.distinct < max(1.0, self._next[-1].rows):
            return
        moment = self._next[-1]
        if moment.kind in IDLE and not self._is_at_work():
            return
        if self._not_before_s is None:
            # Rows come at the end of a batch; this delay spreads the kills over the next one.
            later_s = self._scene.random.uniform(0, judge.pace_s)
            self._not_before_s = time.monotonic() + later_s
        if time.monotonic() < self._not_before_s:
            return
        blow = self._blow(moment.kind)
        if blow is None or (moment.is_in_transaction and not self._waited_for_transaction()):
            return
        blow.strike()
        when = " in a transaction" if moment.is_in_transaction else ""
        self._say(f"{judge.distinct:,} rows seen; killed{when}: {blow.text}")
        self.kills[moment.kind] += 1
        self.in_transaction[moment.kind] += moment.is_in_transaction
        self._next.pop()
        self._not_before_s = None

    def _is_at_work(self) -> bool:
        """Return whether rows came since the application's last start."""
        starts, seen = self._application.starts, self._reader.seen
        if self._started_at[0] != starts:
            self._started_at = starts, seen
        return seen > self._started_at[1]

    def _waited_for_transaction(self) -> bool:
        """Wait until the sink's transaction is open; return False if it is not for a while."""
        bootstrap = self._scene.cluster.ray_cluster.bootstrap
        settings = ClientSettings(parse_bootstrap(bootstrap), operation_timeout_ms=_ASK_TIMEOUT_MS)
        deadline_s = time.monotonic() + _OPEN_WAIT_S
        with BlockingClient(bootstrap, settings) as client:
            while time.monotonic() < deadline_s:
                try:
                    if client.describe_transaction(TRANSACTIONAL_ID).state == "Ongoing":
                        return True
                except (ClientError, KafkaError):
                    return False  # its coordinator is still restarting after the last kill
                time.sleep(_OPEN_LOOK_S)
        return False

    def _blow(self, kind: str) -> Blow | None:
        """Return a kill of this kind; None if there is no such process now."""
        application, random = self._application, self._scene.random
        match kind:
            case "executor":
                return application.executor(random)
            case "worker":
                return application.worker(random)
            case "driver":
                return application.driver(random)
            case "application" | "application, new query":
                return application.whole(new_query=kind == NEW_QUERY)
            case "leader":
                victim = leader(self._scene)
                return Blow(victim.text, victim.pids)
            case _:
                pid = coordinator_process(self._scene, TRANSACTION, TRANSACTIONAL_ID)
                return Blow(f"coordinator of {TRANSACTIONAL_ID}, process {pid}", [pid])
