"""Brokers: registration, sessions, fencing, clean shutdown.

| state         | entered by                                     | left by                       |
|---------------|------------------------------------------------|-------------------------------|
| fenced        | registration; session timeout; clean shutdown  | heartbeat past registration   |
| live          | that heartbeat; a process that only restarted  | session timeout               |
| shutting down | heartbeat that wants it, with anything to give | others know who leads instead |

A broker leaves its partitions in steps: with 100,000 of them one step would take longer than the
controller's lease. It is fenced, registered anew or unregistered, and answered, with the last step.
Until then it is what it was; a controller that takes over meanwhile goes on with the rest.

A fenced broker leads nothing, is in sync nowhere and is given no replicas. One that comes back
having lost nothing stays eligible to lead (KIP-966): it shut down cleanly, or only its process
ended and the kernel has what it wrote. Sessions are soft state: a new controller gives every broker
a session first, less the time for which no voter has heard the one before. `now_ms` is a clock that
never goes back.
"""

from __future__ import annotations

from itertools import islice

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import (
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    RegisterBroker,
)
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.partitions import PartitionControl, Steps
from raylog.actors.controller.wanted import WantedControl
from raylog.actors.metadata.followed import refusal, require_agreement
from raylog.actors.metadata.image import BrokerRegistration, MetadataImage
from raylog.actors.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    Record,
)
from raylog.actors.metadata.voting import lease_ms
from raylog.wire.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    StaleBrokerEpoch,
)

LEFT_AT_ONCE = 200
"""Partitions that a broker leaves in one step: 4 ms."""


_NO_STEPS: Steps = iter(())


class BrokerControl:
    """Decides about brokers against the image; remembers when each was last heard of."""

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, partitions: PartitionControl
    ) -> None:
        self._image = image
        self._partitions = partitions
        self.wanted = WantedControl(image)
        self._session_timeout_ms = settings.number("broker.session.timeout.ms")
        interval_ms = settings.number("broker.heartbeat.interval.ms")
        self._finding_ms = lease_ms(interval_ms) + interval_ms
        """Until a broker has found a new controller: a heartbeat hangs for the lease at most."""
        self._last_contact_ms: dict[int, int] = {}
        self._last_check_ms = 0
        self._followed: dict[int, int] = {}
        """Broker id to the metadata it is known to have applied (exclusive)."""
        self._handed_over: dict[int, int] = {}
        """Broker that shuts down to the offset behind which others lead instead."""
        self._coming_back: dict[int, Steps] = {}
        """Broker that has been unfenced to the elections that its return allows, as yet to be held.
        A controller that takes over meanwhile begins with them."""
        self._live_since_ms: dict[tuple[int, str], int] = {}
        """Broker and its directory to when it was seen to be live, and has been ever since."""

    def took_over(self, now_ms: int, silent_ms: int = 0) -> None:
        """This controller begins to serve: sessions have run since the one before was heard.

        But brokers have to find this one first; where sessions are too short for that, two thirds
        of one are left.
        """
        over_ms = max(self._session_timeout_ms - self._finding_ms, self._session_timeout_ms // 3)
        begun_ms = now_ms - min(silent_ms, over_ms)
        self._last_contact_ms = dict.fromkeys(self._image.brokers, begun_ms)
        self._last_check_ms = now_ms

    def current(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """The registration of that epoch; raises StaleBrokerEpoch."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            known = "none" if broker is None else str(broker.broker_epoch)
            raise StaleBrokerEpoch(
                f"broker {broker_id} has broker epoch {known}, not {broker_epoch}"
            )
        return broker

    def register(self, asked: RegisterBroker, now_ms: int) -> Decision[int]:
        """Give a broker's process start its broker epoch: the offset of its record.

        Raises InconsistentClusterId, as MetadataRefused where the broker has known other metadata
        than this or more of it, DuplicateBrokerRegistration, and InvalidRegistration where another
        directory is expected.
        """
        if asked.cluster_id != self._image.cluster_id:
            raise InconsistentClusterId(
                f"this is cluster {self._image.cluster_id}, not {asked.cluster_id}"
            )
        self._check_followed(asked)
        known = self._image.brokers.get(asked.broker_id)
        if known is not None and known.incarnation == asked.incarnation:
            self._last_contact_ms[asked.broker_id] = now_ms
            return Decision([], known.broker_epoch)
        learned = self.wanted.register(asked)
        records: list[Record] = []
        resumes = False
        if known is not None:
            self._check_owner(known, asked)
            resumes = self._resumes(known, asked)
            if not resumes:
                crashed = not _kept_everything(known, asked)
                records, more = self._next_left(asked.broker_id, crashed=crashed)
                if more:
                    return Decision(records, known.broker_epoch, more=True)
        self._handed_over.pop(asked.broker_id, None)
        records.extend(learned)
        broker_epoch = self._image.offset + len(records)
        self._last_contact_ms[asked.broker_id] = now_ms
        records.append(
            BrokerRegistered(
                broker_id=asked.broker_id,
                broker_epoch=broker_epoch,
                host=asked.host,
                port=asked.port,
                rack=asked.rack,
                directory_id=asked.directory_id,
                incarnation=asked.incarnation,
                fenced=not resumes,
                build=asked.build,
                node_id=asked.node_id,
                endpoints=asked.endpoints,
            )
        )
        return Decision(records, broker_epoch)

    def _check_followed(self, asked: RegisterBroker) -> None:
        require_agreement(asked.broker_id, asked.followed, self._image)
        if asked.previous_broker_epoch >= self._image.offset:  # all that older builds have noted
            raise refusal(
                asked.broker_id,
                f"it ends at offset {self._image.offset}; the broker had broker epoch "
                f"{asked.previous_broker_epoch}",
            )

    @staticmethod
    def _check_owner(known: BrokerRegistration, asked: RegisterBroker) -> None:
        """Two directories cannot both be one live broker; one directory's lock is held once."""
        if not known.fenced and known.directory_id != asked.directory_id:
            raise DuplicateBrokerRegistration(
                f"Another broker is registered with broker id {asked.broker_id}: the one with "
                f"the directory {known.directory_id}, at "
                f"{', '.join(map(str, known.endpoints))}."
            )

    @staticmethod
    def _resumes(known: BrokerRegistration, asked: RegisterBroker) -> bool:
        """Whether only the broker's own process ended and its session still runs."""
        return known.is_live and asked.kept_running and _kept_everything(known, asked)

    def followed(self, broker_id: int, offset: int) -> None:
        """A broker has applied the metadata below an offset."""
        self._followed[broker_id] = offset

    def heartbeat(
        self, asked: BrokerHeartbeat, now_ms: int, committed: int
    ) -> Decision[BrokerHeartbeatAnswer]:
        """Keep a session; unfence a broker that has caught up; let one go that wants to."""
        broker = self.current(asked.broker_id, asked.broker_epoch)
        self._last_contact_ms[asked.broker_id] = now_ms
        if asked.offset > self._followed.get(asked.broker_id, -1):
            self.followed(asked.broker_id, asked.offset)
        records: list[Record] = []
        fenced, leaves, more = broker.fenced, False, False
        if asked.wants_shutdown:
            left = self._shut_down(broker)
            records, leaves, more = left.records, left.response, left.more
            fenced = fenced or leaves
        elif fenced and not broker.shutting_down and asked.offset > asked.broker_epoch:
            records.append(BrokerUnfenced(asked.broker_id, asked.broker_epoch))
            self._coming_back[asked.broker_id] = self._partitions.broker_back(asked.broker_id)
            fenced = False
        if not (fenced or leaves or asked.wants_shutdown):
            elected, more = next(self._coming_back.get(asked.broker_id, _NO_STEPS), ([], False))
            records.extend(elected)
            if not more:
                self._coming_back.pop(asked.broker_id, None)
        return Decision(records, BrokerHeartbeatAnswer(fenced, leaves, committed), more)

    def _shut_down(self, broker: BrokerRegistration) -> Decision[bool]:
        """Hand over; when the others know of it, the broker may go."""
        if broker.fenced:
            return Decision([], True)
        if broker.shutting_down:
            handed_over = self._handed_over.setdefault(broker.broker_id, self._image.offset)
            if not self._all_know(handed_over):
                return Decision([], False)
            return self._fenced(broker)
        gone, more = self._next_left(broker.broker_id)
        if more:
            self._handed_over[broker.broker_id] = self._image.offset + len(gone)
            return Decision(gone, False, more)
        gave = bool(gone) or broker.broker_id in self._handed_over
        others = [one for one in self._image.live_brokers() if one is not broker]
        leaving = BrokerShuttingDown(broker.broker_id, broker.broker_epoch)
        if not (gave and others):
            fenced = BrokerFenced(broker.broker_id, broker.broker_epoch)
            return Decision([leaving, fenced, *gone], True)
        self._handed_over[broker.broker_id] = self._image.offset + 1 + len(gone)
        return Decision([leaving, *gone], False)

    def _all_know(self, offset: int) -> bool:
        """Whether all live brokers have applied what is below an offset."""
        return all(
            self._followed.get(one.broker_id, -1) >= offset for one in self._image.live_brokers()
        )

    def expire(self, now_ms: int) -> Decision[None]:
        """Fence brokers that have been silent for too long.

        A controller that was held up itself has heard nobody: every session starts anew then.
        """
        if now_ms - self._last_check_ms > self._session_timeout_ms // 2:
            self.took_over(now_ms)
        self._last_check_ms = now_ms
        for broker in self._image.brokers.values():
            silent_ms = now_ms - self._last_contact_ms.setdefault(broker.broker_id, now_ms)
            if not broker.fenced and silent_ms > self._session_timeout_ms:
                # One a time: each is decided on what the last one left.
                return Decision(self._fenced(broker).records, None)
        return Decision([], None)

    def _fenced(self, broker: BrokerRegistration) -> Decision[bool]:
        """Have it leave the next partitions; with the last of them it is fenced."""
        gone, more = self._next_left(broker.broker_id)
        if more:
            return Decision(gone, False, more)
        return Decision([BrokerFenced(broker.broker_id, broker.broker_epoch), *gone], True)

    def _next_left(self, broker_id: int, *, crashed: bool = False) -> tuple[list[Record], bool]:
        """The next partitions that a broker leaves, and whether there may be more."""
        leaving = self._partitions.broker_gone(broker_id, crashed=crashed)
        gone = list(islice(leaving, LEFT_AT_ONCE))
        return gone, len(gone) == LEFT_AT_ONCE

    def settled(self, now_ms: int) -> dict[int, str]:
        """Brokers, with their directories, that have been heard without a pause for a session.

        Asked with every look at the sessions: what is begun by itself is begun with these.
        """
        pause_ms = self._session_timeout_ms // 2
        live = [
            (one.broker_id, one.directory_id)
            for one in self._image.live_brokers()
            if now_ms - self._last_contact_ms.get(one.broker_id, 0) < pause_ms
        ]
        self._live_since_ms = {one: self._live_since_ms.get(one, now_ms) for one in live}
        return {
            broker_id: directory_id
            for (broker_id, directory_id), since_ms in self._live_since_ms.items()
            if now_ms - since_ms >= self._session_timeout_ms + pause_ms
        }

    def unregister(self, broker_id: int) -> Decision[None]:
        """Forget a broker that will not come back; its replicas stay assigned to it."""
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
        gone, more = self._next_left(broker_id, crashed=True)
        if more:
            return Decision(gone, None, more=True)
        self._last_contact_ms.pop(broker_id, None)
        self._followed.pop(broker_id, None)
        return Decision([*gone, BrokerUnregistered(broker_id, broker.broker_epoch)], None)


def _kept_everything(known: BrokerRegistration, asked: RegisterBroker) -> bool:
    """Whether a broker comes back with all that it had written."""
    its_own = (
        known.broker_epoch == asked.previous_broker_epoch or known.incarnation in asked.unanswered
    )
    same = its_own and known.directory_id == asked.directory_id
    return same and (asked.clean_shutdown or asked.kept_running)
