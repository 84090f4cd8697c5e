"""Methods that a Broker serves, in addition to the voter's (`metadata.voting`).

| method            | answer                                                                |
|-------------------|-----------------------------------------------------------------------|
| ready             | None once the broker serves; raises the reason if it does not         |
| describe          | BrokerStatus                                                          |
| describe_log_dirs | list of LogDirStatus                                                  |
| locate_leaders    | for each partition, the link address of its leader's process here, or |
|                   | "" if this broker does not lead it                                    |
| throttle_shares   | how many Replica processes use the leader's and the follower's        |
|                   | throttled rate                                                        |
| cleaning_turn     | whether a Replica process may clean its dirtiest log, or continue to  |
| cleaning_ended    | None; a Replica process reports that it has cleaned a log             |
| alter_partitions  | list of IsrOutcome, for a list of IsrChange from leaders here         |
| coordinator_address | the link address of a role's coordinator, "" while it does not run  |
| find_transaction_coordinator | broker id and link address of the coordinator of an id     |
| allocate_producer_ids | ProducerIdBlock, for this broker's transaction coordinator        |
| last_heartbeat    | the age in ms of the latest heartbeat that a controller has answered, |
|                   | and `offset` and `lease_ms` of its BrokerHeartbeatAnswer              |
| shutdown          | None once leadership is handed over and every log is closed cleanly   |
| replace_controller | None once the controller is started in a new process near here       |
| health            | BrokerHealth                                                          |
| scrape            | list of Sample: the metrics of all its processes                      |
| ping              | dict                                                                  |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.common_messages import PartitionStatus
from raylog.actors.endpoints import Endpoint
from raylog.actors.message import message


@message
@dataclass(frozen=True, slots=True)
class ChildStatus:
    """One actor that a broker owns."""

    name: str
    role: str
    pid: int
    """0 while it is starting."""
    node_id: str
    state: str
    """"running", "starting", "spare" for a replica without partitions, "host" for one that only
    hosts a gateway, "silent" for one that does not answer."""
    restarts: int
    partitions: int = 0


@message
@dataclass(frozen=True, slots=True)
class StrayStatus:
    """A directory set aside because no partition here owns it; an operator must remove it."""

    directory: str
    size_bytes: int
    """Disk space that it uses, in bytes."""


@message
@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker and its children at one moment."""

    broker_id: int
    cluster_id: str
    broker_epoch: int
    host: str
    port: int
    """The advertised endpoint of the inter-broker listener."""
    directory: str
    pid: int
    state: str
    """"starting", "running", "fenced", "shutting down" or "shut down"."""
    restarts: int
    """Process starts since the last clean shutdown, not counting the first."""
    metadata_offset: int
    is_voter: bool
    children: list[ChildStatus]
    partitions: list[PartitionStatus]
    strays: list[StrayStatus] = field(default_factory=list)
    total_bytes: int = -1
    """Size of the volume of the data directory; -1 if unknown."""
    usable_bytes: int = -1
    vote_trouble: str = ""
    """Why its copy of the metadata log accepts no more writes; empty if it does, or if there is
    none."""

    listening: tuple[Endpoint, ...] = ()
    """Its listening endpoints."""
    endpoints: tuple[Endpoint, ...] = ()
    """Advertised endpoints, the inter-broker listener's first."""
    http: str = ""
    """The host:port of its health and metrics; "" if it has none."""

    @property
    def bootstrap(self) -> str:
        """The HOST:PORT of the inter-broker listener, for bootstrap.servers."""
        return Endpoint("", self.host, self.port).address


@message
@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """Whether a broker serves (`broker.health`)."""

    broker_id: int
    state: str
    """As in BrokerStatus."""
    reasons: tuple[str, ...]
    """Why it does not serve; empty if it does."""
    partitions: int
    offline_partitions: int
    """Partitions that could not be opened, or whose disk failed."""
    listener: str
    """The host:port of the health listener; "" if there is none."""

    def document(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return {
            "broker": self.broker_id,
            "ready": not self.reasons,
            "state": self.state,
            "reasons": list(self.reasons),
            "partitions": self.partitions,
            "offline_partitions": self.offline_partitions,
            "listener": self.listener or None,
        }
