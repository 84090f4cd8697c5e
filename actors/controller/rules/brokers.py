"""Brokers: registration, sessions, fencing, clean shutdown.

| state         | entered by                                     | left by                       |
|---------------|------------------------------------------------|-------------------------------|
| fenced        | registration; session timeout; clean shutdown  | heartbeat past registration   |
| live          | that heartbeat; restart of the process only    | session timeout               |
| shutting down | heartbeat that requests it, if the broker has  | every live broker knows the   |
|               | partitions to hand over                        | new leaders                   |

A broker leaves its partitions in steps, because with 100,000 of them one step would take longer
than the controller's lease. The last step fences, registers or unregisters it and gives the answer.
Until then its state stays as it was, and a controller that takes over meanwhile goes on.

A fenced broker leads nothing, is in sync nowhere and gets no replicas. One that comes back without
a loss stays eligible to lead (KIP-966): it shut down cleanly, or only its process ended and the
kernel still has what it wrote. Sessions are soft state: a new controller first gives every broker a
session, less the time for which no voter has heard its predecessor. `now_ms` is monotonic.
"""

from __future__ import annotations

from itertools import islice

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import (
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    RegisterBroker,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.partitions import PartitionControl, Steps
from raylog.actors.controller.rules.wanted import WantedControl
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
"""Partitions that a broker leaves in one step, which takes 4 ms."""


_NO_STEPS: Steps = iter(())


class BrokerControl:
    """Decides about brokers from the image; remembers when each was last heard from."""

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, partitions: PartitionControl
    ) -> None:
        self._image = image
        self._partitions = partitions
        self.wanted = WantedControl(image)
        self._session_timeout_ms = settings.number("broker.session.timeout.ms")
        interval_ms = settings.number("broker.heartbeat.interval.ms")
        finding_ms = lease_ms(interval_ms) + interval_ms  # a heartbeat may hang for the lease
        self.kept_ms = min(finding_ms, 2 * self._session_timeout_ms // 3)
        """How much of its session each broker still has when a controller takes over, at least:
        brokers need time to find it."""
        self._last_contact_ms: dict[int, int] = {}
        self._last_check_ms = 0
        self._followed: dict[int, int] = {}
        """Broker id to the end (exclusive) of the metadata that it is known to have applied."""
        self._handed_over: dict[int, int] = {}
        """Id of a broker that is shutting down, to the offset after which others lead its
        partitions."""
        self._coming_back: dict[int, Steps] = {}
        """Id of a broker that was unfenced, to the elections that its return allows and that are
        still to be held. A controller that takes over in the meantime starts with them."""
        self._live_since_ms: dict[tuple[int, str], int] = {}
        """(broker, directory) to the time since which it has been live without interruption."""

    def took_over(self, now_ms: int, silent_ms: int = 0) -> None:
        """Start to serve. Sessions have been running since the previous controller was last heard.

        But each broker has at least `kept_ms` left.
        """
        contact_ms = now_ms - min(silent_ms, self._session_timeout_ms - self.kept_ms)
        self._last_contact_ms = dict.fromkeys(self._image.brokers, contact_ms)
        self._last_check_ms = now_ms

    def current(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """Return the registration of that epoch; raises StaleBrokerEpoch."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            known = "none" if broker is None else str(broker.broker_epoch)
            raise StaleBrokerEpoch(
                f"broker {broker_id} has broker epoch {known}, not {broker_epoch}"
            )
        return broker

    def register(self, request: RegisterBroker, now_ms: int) -> Decision[int]:
        """Assign a broker's process its broker epoch, which is the offset of its record.

        Raises InconsistentClusterId (as MetadataRefused if the broker has followed other metadata,
        or more of it), DuplicateBrokerRegistration, and InvalidRegistration if another directory is
        expected.
        """
        if request.cluster_id != self._image.cluster_id:
            raise InconsistentClusterId(
                f"this is cluster {self._image.cluster_id}, not {request.cluster_id}"
            )
        self._check_followed(request)
        known = self._image.brokers.get(request.broker_id)
        if known is not None and known.incarnation == request.incarnation:
            self._last_contact_ms[request.broker_id] = now_ms
            return Decision([], known.broker_epoch)
        learned = self.wanted.register(request)
        records: list[Record] = []
        resumes = False
        if known is not None:
            self._check_owner(known, request)
            resumes = self._resumes(known, request)
            if not resumes:
                crashed = not _kept_everything(known, request)
                records, more = self._next_left(request.broker_id, crashed=crashed)
                if more:
                    return Decision(records, known.broker_epoch, more=True)
        self._handed_over.pop(request.broker_id, None)
        records.extend(learned)
        broker_epoch = self._image.offset + len(records)
        self._last_contact_ms[request.broker_id] = now_ms
        records.append(
            BrokerRegistered(
                broker_id=request.broker_id,
                broker_epoch=broker_epoch,
                host=request.host,
                port=request.port,
                rack=request.rack,
                directory_id=request.directory_id,
                incarnation=request.incarnation,
                fenced=not resumes,
                build=request.build,
                node_id=request.node_id,
                endpoints=request.endpoints,
            )
        )
        return Decision(records, broker_epoch)

    def _check_followed(self, request: RegisterBroker) -> None:
        require_agreement(request.broker_id, request.followed, self._image)
        # Older builds record only this epoch.
        if request.previous_broker_epoch >= self._image.offset:
            raise refusal(
                request.broker_id,
                f"it ends at offset {self._image.offset}; the broker had broker epoch "
                f"{request.previous_broker_epoch}",
            )

    @staticmethod
    def _check_owner(known: BrokerRegistration, request: RegisterBroker) -> None:
        """Refuse a second directory for a live broker. Only one process can lock a directory."""
        if not known.fenced and known.directory_id != request.directory_id:
            raise DuplicateBrokerRegistration(
                f"Another broker is registered with broker id {request.broker_id}: the one with "
                f"the directory {known.directory_id}, at "
                f"{', '.join(map(str, known.endpoints))}."
            )

    @staticmethod
    def _resumes(known: BrokerRegistration, request: RegisterBroker) -> bool:
        """Whether only the broker's process has ended, and its session has not."""
        return known.is_live and request.kept_running and _kept_everything(known, request)

    def followed(self, broker_id: int, offset: int) -> None:
        """Record that a broker has applied the metadata below an offset."""
        self._followed[broker_id] = offset

    def heartbeat(self, request: BrokerHeartbeat, now_ms: int) -> Decision[BrokerHeartbeatAnswer]:
        """Extend a session; unfence a broker that has caught up; start or finish its shutdown."""
        broker = self.current(request.broker_id, request.broker_epoch)
        self._last_contact_ms[request.broker_id] = now_ms
        if request.offset > self._followed.get(request.broker_id, -1):
            self.followed(request.broker_id, request.offset)
        records: list[Record] = []
        fenced, leaves, more = broker.fenced, False, False
        if request.wants_shutdown:
            left = self._shut_down(broker)
            records, leaves, more = left.records, left.response, left.more
            fenced = fenced or leaves
        elif fenced and not broker.shutting_down and request.offset > request.broker_epoch:
            records.append(BrokerUnfenced(request.broker_id, request.broker_epoch))
            self._coming_back[request.broker_id] = self._partitions.broker_back(request.broker_id)
            fenced = False
        if not (fenced or leaves or request.wants_shutdown):
            elected, more = next(self._coming_back.get(request.broker_id, _NO_STEPS), ([], False))
            records.extend(elected)
            if not more:
                self._coming_back.pop(request.broker_id, None)
        answer = BrokerHeartbeatAnswer(fenced, leaves, lease_ms=self.kept_ms)
        return Decision(records, answer, more)

    def _shut_down(self, broker: BrokerRegistration) -> Decision[bool]:
        """Hand over the broker's partitions. It may stop once the other brokers know that."""
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
        """Whether all live brokers have applied the metadata below an offset."""
        return all(
            self._followed.get(one.broker_id, -1) >= offset for one in self._image.live_brokers()
        )

    def expire(self, now_ms: int) -> Decision[None]:
        """Fence brokers whose session has expired.

        If the controller itself was stalled, it has heard from no broker, so all sessions start
        again.
        """
        if now_ms - self._last_check_ms > self._session_timeout_ms // 2:
            self.took_over(now_ms)
        self._last_check_ms = now_ms
        for broker in self._image.brokers.values():
            silent_ms = now_ms - self._last_contact_ms.setdefault(broker.broker_id, now_ms)
            if not broker.fenced and silent_ms > self._session_timeout_ms:
                # One at a time: each decision depends on the result of the previous one.
                return Decision(self._fenced(broker).records, None)
        return Decision([], None)

    def _fenced(self, broker: BrokerRegistration) -> Decision[bool]:
        """Let a broker leave its next partitions, and fence it together with the last of them."""
        gone, more = self._next_left(broker.broker_id)
        if more:
            return Decision(gone, False, more)
        return Decision([BrokerFenced(broker.broker_id, broker.broker_epoch), *gone], True)

    def _next_left(self, broker_id: int, *, crashed: bool = False) -> tuple[list[Record], bool]:
        """Return the next partitions that a broker leaves, and whether there may be more."""
        leaving = self._partitions.broker_gone(broker_id, crashed=crashed)
        gone = list(islice(leaving, LEFT_AT_ONCE))
        return gone, len(gone) == LEFT_AT_ONCE

    def settled(self, now_ms: int) -> dict[int, str]:
        """Return brokers and directories that have been live for a session without interruption.

        Called at every check of the sessions. Automatic changes use only these brokers.
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


def _kept_everything(known: BrokerRegistration, request: RegisterBroker) -> bool:
    """Whether a broker comes back with everything that it had written."""
    its_own = (
        known.broker_epoch == request.previous_broker_epoch
        or known.incarnation in request.unanswered
    )
    same = its_own and known.directory_id == request.directory_id
    return same and (request.clean_shutdown or request.kept_running)
