"""State machine of the supervisor: which brokers to start, and why others cannot run.

| a wanted broker                                | action                                          |
|------------------------------------------------|-------------------------------------------------|
| has an actor, in any state                     | none: Ray restarts it where its labels are      |
| has none, and one live node carries its labels | it is started there                             |
| has none, and no live node carries them        | it waits, and this is reported                  |
| has none, and several nodes carry them         | it is not started, and this is reported         |
| did not start                                  | it is started again, with growing delays        |
| has lost its directory (`rules.losses`)        | this is reported; if its settings say so it is  |
|                                                | replaced after a delay, if the controller       |
|                                                | allows it                                       |
| is held (`rules.holds`)                        | it is not started, and this is reported; a hold |
|                                                | for a machine that is back ends                 |

Brokers that are not wanted are left alone: whoever removes them from the wanted ones ends them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from raylog.actors.backoff import Backoff
from raylog.actors.config import BrokerSettings
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name
from raylog.actors.places import NodeEntry
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.actors.supervisor.rules.holds import Hold, carriers_of, describe_holds
from raylog.actors.supervisor.rules.losses import Loss

NODES_NAMED = 3
DELAY = "broker.replacement.delay.ms"
RETRY_MS = 60_000
"""Delay before a controller that refused to replace a broker is asked again, since it has to
check all of the broker's partitions."""


class SupervisorMachine:
    """Compares the desired with the actual state; tracks brokers that are starting or failing."""

    def __init__(self) -> None:
        self._starting: set[int] = set()
        self._backoffs: dict[int, Backoff] = {}
        self._failures: dict[int, str] = {}
        self._refusals: dict[int, tuple[str, int]] = {}
        """Why a broker is not replaced, and when the controller was asked."""
        self.troubles: dict[int, str] = {}
        """Why a wanted broker is not running, or might not run after a restart."""
        self.ended: list[int] = []
        """Brokers whose holds have ended, according to the last look."""

    def decide(
        self,
        desired: DesiredCluster,
        nodes: Sequence[NodeEntry],
        actors: Collection[str],
        now_ms: float,
        holds: Mapping[int, Hold] | None = None,
    ) -> list[BrokerWanted]:
        """Return the brokers to start now; call `started` or `failed` for each.

        `nodes` are the live ones, `actors` the names in use. `holds` must have been read after
        `actors`: a broker is held before it is stopped.
        """
        holds = dict(holds or {})
        wanted_ids = {one.broker_id for one in desired.brokers}
        self.ended = [one for one in holds if one not in wanted_ids]
        for wanted in desired.brokers:
            held = holds.get(wanted.broker_id)
            if held is not None and held.ends_with(carriers_of(wanted, nodes)):
                self.ended.append(wanted.broker_id)
        for broker_id in self.ended:
            del holds[broker_id]
        self.troubles = describe_holds(holds)
        return self._starts(desired, nodes, actors, now_ms, holds)

    def _starts(
        self,
        desired: DesiredCluster,
        nodes: Sequence[NodeEntry],
        actors: Collection[str],
        now_ms: float,
        held: Collection[int],
    ) -> list[BrokerWanted]:
        starts = []
        for wanted in desired.brokers:
            broker_id = wanted.broker_id
            if broker_id in held:
                continue
            carriers = carriers_of(wanted, nodes)
            if len(carriers) > 1:
                self.troubles[broker_id] = _several(wanted, carriers)
            is_starting = broker_id in self._starting
            if broker_name(desired.cluster_id, broker_id) in actors and not is_starting:
                continue
            if not carriers:
                self.troubles[broker_id] = f"no live node carries {_labels_text(wanted)}"
            elif len(carriers) == 1:
                if broker_id in self._failures:
                    self.troubles[broker_id] = self._failures[broker_id]
                if not is_starting and not self._backoff(broker_id).wait_ms(now_ms):
                    starts.append(wanted)
        self._starting.update(one.broker_id for one in starts)
        return starts

    def replaceable(
        self,
        desired: DesiredCluster,
        losses: Mapping[int, Loss],
        nodes: Sequence[NodeEntry],
        held: Collection[int],
        now_ms: int,
    ) -> list[BrokerWanted]:
        """Return the brokers to replace now, whose directories have been lost for long enough.

        Call it after `decide`, and call `refused` for each that the controller does not allow.
        `now_ms` is wall-clock time.
        """
        replaced = []
        self._refusals = {one: why for one, why in self._refusals.items() if one in losses}
        for wanted in desired.brokers:
            broker_id = wanted.broker_id
            lost = losses.get(broker_id)
            if lost is None or lost.directory_id != wanted.directory_id or broker_id in held:
                continue
            carriers = carriers_of(wanted, nodes)
            if len(carriers) != 1:
                continue
            delay_ms = BrokerSettings(dict(wanted.settings)).number(DELAY)
            refusal, asked_ms = self._refusals.get(broker_id, ("", -RETRY_MS))
            why = f" It is not replaced by itself: {refusal}" if refusal else ""
            self.troubles[broker_id] = (
                f"its directory {lost.directory_id} is gone from {wanted.directory}. Is its disk "
                f"mounted? If it is lost: raylog brokers replace {broker_id}.{why}"
            )
            is_due = delay_ms >= 0 and now_ms - lost.since_ms >= delay_ms
            if is_due and now_ms - asked_ms >= RETRY_MS:
                replaced.append(wanted)
        return replaced

    def refused(self, broker_id: int, why: str, now_ms: int) -> None:
        """Record that the controller refused to replace a broker; it is asked again later."""
        self._refusals[broker_id] = (why, now_ms)

    def started(self, broker_id: int) -> None:
        """Record that a broker's actor runs, or is not needed since the broker is held."""
        self._starting.discard(broker_id)
        self._failures.pop(broker_id, None)

    def failed(self, broker_id: int, why: str, now_ms: float) -> None:
        """Record that a broker did not start."""
        self._starting.discard(broker_id)
        self._failures[broker_id] = why
        self._backoff(broker_id).lost(now_ms)

    def _backoff(self, broker_id: int) -> Backoff:
        return self._backoffs.setdefault(broker_id, Backoff())


def _several(wanted: BrokerWanted, carriers: Sequence[NodeEntry]) -> str:
    named = ", ".join(node.node_id for node in carriers[:NODES_NAMED])
    return f"expected one node with {_labels_text(wanted)}, found {len(carriers)}: {named}"


def _labels_text(wanted: BrokerWanted) -> str:
    return ", ".join(f"{name}={value}" for name, value in wanted.labels.items())
