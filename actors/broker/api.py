"""What a Broker answers, beside the voter's methods (`metadata.voting`).

| method            | answer                                                                |
|-------------------|-----------------------------------------------------------------------|
| ready             | None once the broker serves; raises why it does not                   |
| describe          | BrokerStatus                                                          |
| describe_log_dirs | list of LogDirStatus                                                  |
| locate_leaders    | of each partition, the link address of its leader's process here, ""  |
|                   | if it is not led here                                                 |
| throttle_shares   | how many Replica processes use the leader's and the follower's        |
|                   | throttled rate                                                        |
| cleaning_turn     | whether a Replica process may clean its dirtiest log, or go on        |
| cleaning_ended    | None: the process has cleaned it                                      |
| alter_partitions  | list of IsrOutcome, for the list of IsrChange that leaders here want  |
| coordinator_address | of a role, its coordinator's link address, "" while it does not run |
| find_transaction_coordinator | broker id and link address of who coordinates an id        |
| allocate_producer_ids | ProducerIdBlock, for this broker's transaction coordinator        |
| shutdown          | None once leadership is handed over and every log is closed cleanly   |
| replace_controller | None once another process is started as the controller, near here    |
| health            | BrokerHealth                                                          |
| scrape            | list of Sample: the metrics of all its processes                      |
| ping              | dict                                                                  |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.endpoints import Endpoint
from raylog.actors.plain import message
from raylog.actors.ports import PartitionStatus


@message
@dataclass(frozen=True, slots=True)
class ChildStatus:
    """One actor that a broker owns."""

    name: str
    role: str
    pid: int
    """0 while it is being started."""
    node_id: str
    state: str
    """"running", "starting", "spare" for a replica without partitions, "host" for one that only
    a gateway lives in, "silent" for one that does not answer."""
    restarts: int
    partitions: int = 0


@message
@dataclass(frozen=True, slots=True)
class StrayStatus:
    """A directory that was of no partition here, and is kept until somebody removes it."""

    directory: str
    size_bytes: int
    """What it takes on the disk."""


@message
@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker as it stands."""

    broker_id: int
    cluster_id: str
    broker_epoch: int
    host: str
    port: int
    """What clients of the inter-broker listener are told to connect to."""
    directory: str
    pid: int
    state: str
    """"starting", "running", "fenced", "shutting down" or "shut down"."""
    restarts: int
    """Process starts since the last clean shutdown, beside the first."""
    metadata_offset: int
    is_voter: bool
    children: list[ChildStatus]
    partitions: list[PartitionStatus]
    strays: list[StrayStatus] = field(default_factory=list)
    total_bytes: int = -1
    """Of the volume that the data directory is on; -1: the disk does not tell."""
    usable_bytes: int = -1
    vote_trouble: str = ""
    """Why its copy of the metadata log takes nothing more; empty: it does, or there is none."""

    listening: tuple[Endpoint, ...] = ()
    """Where it listens."""
    endpoints: tuple[Endpoint, ...] = ()
    """What clients are told to connect to, that of the inter-broker listener first."""
    http: str = ""
    """host:port where its health and metrics are told; "" where they are not."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the inter-broker listener, for bootstrap.servers."""
        return Endpoint("", self.host, self.port).address


@message
@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """Whether a broker serves (`broker.health`)."""

    broker_id: int
    state: str
    """As in BrokerStatus."""
    reasons: tuple[str, ...]
    """Why it does not serve; empty: it does."""
    partitions: int
    offline_partitions: int
    """Of them: could not be opened, or their disk failed."""
    listener: str
    """host:port where this is told over HTTP; "" where it is not."""

    def document(self) -> dict[str, object]:
        """The same for JSON."""
        return {
            "broker": self.broker_id,
            "ready": not self.reasons,
            "state": self.state,
            "reasons": list(self.reasons),
            "partitions": self.partitions,
            "offline_partitions": self.offline_partitions,
            "listener": self.listener or None,
        }
