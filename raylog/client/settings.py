"""Settings of the clients. Names follow Kafka's, in Python's spelling and with their units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from raylog.client.errors import InvalidSetting
from raylog.client.security.settings import SecuritySettings
from raylog.client.values import Values
from raylog.wire.compression import Codec

ACKS_ALL = -1
DEFAULT_PORT = 9092
_PORT_MAX = 65_535
PARTITIONERS = (
    "default",
    "round_robin",
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
)
"""Kafka's, then librdkafka's."""
_PARTITIONERS_OF_KEYS = ("consistent", "murmur2")
"""A record without a key is placed as one with an empty key."""
_IN_FLIGHT_IDEMPOTENT_MAX = 5
"""Brokers remember that many batches of a producer and partition."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClientSettings(Values):
    """Connections and retries."""

    bootstrap: tuple[tuple[str, int], ...]
    """Where to ask first: (host, port); a way in, not the list of brokers."""
    client_id: str = "raylog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """Longest time to wait for the answer to a request."""
    operation_timeout_ms: int = 60_000
    """Longest time for one call, including all its requests and retries."""
    retry_backoff_ms: int = 50
    """First pause before a repeat; doubles up to `retry_backoff_max_ms`."""
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    """A connection that was idle for longer is made anew: brokers end it after 600,000 ms."""
    reconnect_backoff_ms: int = 50
    """After a connection failed: first pause before the next to the same broker; doubles."""
    reconnect_backoff_max_ms: int = 1_000
    metadata_recovery_strategy: str = "rebootstrap"
    """Where no known broker answers: begin again at `bootstrap` (KIP-899), or "none"."""
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    """After so long without metadata from any known broker, begin again at `bootstrap`."""
    security: SecuritySettings = field(default_factory=SecuritySettings)
    """TLS and SASL; by default neither."""

    def __post_init__(self) -> None:
        for first, last in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ):
            require_order(self, first, last)
        require_choice(self, "metadata_recovery_strategy", ("rebootstrap", "none"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerSettings(Values):
    """How records are collected, sent and repeated."""

    acks: int = ACKS_ALL
    """0: nobody answers; 1: the leader has it; -1: all in-sync replicas have it."""
    codec: Codec = Codec.NONE
    codec_level: int | None = None
    batch_bytes: int = 128 * 1024
    """Size at which a batch is sent, before compression."""
    linger_ms: int = 5
    """Longest time that a batch waits for more records."""
    record_bytes_max: int = 100 * 1024 * 1024
    """A larger record, uncompressed, is refused by `send`: RecordTooLarge.

    Brokers tell nothing about a request above their `socket.request.max.bytes`, of which this is
    the default: they close the connection."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Records held in all, unsent or unacknowledged; more waits, at most `max_block_ms`."""
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    """From `send` to acknowledgement, repeats included; then the batch fails, in flight or not.

    Unlike in Kafka's producer, a batch fails only if it was tried, or what is in front of it: never
    because the process was stopped, or its event loop busy, for so long. If it was that old when it
    was tried first, its time begins there."""
    in_flight_max: int = 5
    """Most unanswered requests per broker."""
    retries: int = 2**31 - 1
    """How often a batch is sent again before it fails, within `delivery_timeout_ms`."""
    idempotent: bool | None = None
    """Repeats leave no duplicates and keep the order; None: wherever the other settings allow."""
    metadata_max_idle_ms: int = 300_000
    """A topic to which nothing was sent for so long is forgotten, and looked up when it is used
    again."""
    transactional_id: str | None = None
    """Whose transactions these are: a second producer of the same id fences the first (KIP-98)."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that is open for longer."""
    partitioner: str = "default"
    """"default": by key as Kafka's clients agree, else sticky (KIP-794); others: PARTITIONERS."""
    partitioner_ignore_keys: bool = False
    """Ignore keys when choosing partitions."""
    partitioner_adaptive: bool = True
    """Give fewer records to partitions whose brokers are slow (KIP-794)."""
    partitioner_availability_timeout_ms: int = 0
    """Avoid partitions whose broker has taken nothing for so long; 0: never avoid them."""
    interceptors: tuple[str, ...] = ()
    """Names of interceptors that packages registered."""

    def __post_init__(self) -> None:
        if self.acks not in (0, 1, ACKS_ALL):
            raise InvalidSetting(f"expected acks 0, 1 or -1 (all), found {self.acks}")
        if self.in_flight_max < 1:
            raise InvalidSetting(f"expected in_flight_max of 1 or more, found {self.in_flight_max}")
        require_choice(self, "partitioner", PARTITIONERS)
        if self.partitioner_ignore_keys and self.partitioner in _PARTITIONERS_OF_KEYS:
            raise InvalidSetting(
                f"partitioner={self.partitioner} places all records by their keys: expected "
                "partitioner_ignore_keys=False, found True"
            )
        contradiction = self._contradiction()
        if contradiction is None and self.idempotent is not False:
            return
        if self.transactional_id is not None:
            reason = contradiction or "idempotent=False"
            raise InvalidSetting(f"a transactional producer is idempotent, found {reason}")
        if self.idempotent:
            raise InvalidSetting(
                f"an idempotent producer needs {contradiction}; or set idempotent=False"
            )

    @property
    def is_idempotent(self) -> bool:
        """What `idempotent` comes to."""
        return self.idempotent is not False and self._contradiction() is None

    def _contradiction(self) -> str | None:
        """What keeps a producer from being idempotent."""
        if self.acks != ACKS_ALL:
            return f"acks=-1 (all), found {self.acks}"
        if self.retries < 1:
            return f"retries of 1 or more, found {self.retries}"
        if self.in_flight_max > _IN_FLIGHT_IDEMPOTENT_MAX:
            found = f"found in_flight_max={self.in_flight_max}"
            return f"1 to {_IN_FLIGHT_IDEMPOTENT_MAX} requests in flight, {found}"
        return None


def require_choice(settings: object, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of these."""
    found = getattr(settings, name)
    if found not in choices:
        *others, last = map(repr, choices)
        raise InvalidSetting(f"expected {name} {', '.join(others)} or {last}, found {found!r}")


def require_order(settings: object, first: str, last: str) -> None:
    """Refuse a lower bound above its upper."""
    low, high = getattr(settings, first), getattr(settings, last)
    if low > high:
        raise InvalidSetting(f"expected {first} of at most {last}={high}, found {low}")


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Read "host:port,host:port" (or a sequence of such); the port is 9092 unless given."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_address(part.strip()) for part in parts if part.strip())
    if not addresses:
        raise InvalidSetting("bootstrap.servers: expected host:port, found no address")
    return addresses


def _address(text: str) -> tuple[str, int]:
    """Read one address; an IPv6 host may stand in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    name = bare_host(host)
    if not name or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise InvalidSetting(f"bootstrap.servers: expected host:port, found {text!r}")
    return name, int(port)


def bare_host(host: str) -> str | None:
    """A host without the brackets of an IPv6 address; None if it can be no host."""
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not is_bracketed and ":" not in host:
        return None if "/" in host else host
    try:
        return str(IPv6Address(host[1:-1] if is_bracketed else host))
    except ValueError:
        return None
