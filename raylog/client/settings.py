"""Settings of the clients: Kafka's names in Python's spelling, with units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.client.errors import InvalidSetting
from raylog.client.security.settings import SecuritySettings
from raylog.client.values import Values
from raylog.wire.compression import LEVELS, Codec

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
"""Kafka's partitioners, then librdkafka's."""
_PARTITIONERS_OF_KEYS = ("consistent", "murmur2")
"""These partitioners treat a record without a key like one with an empty key."""
_IN_FLIGHT_IDEMPOTENT_MAX = 5
"""Brokers remember this many batches per producer and partition."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClientSettings(Values):
    """Settings for connections and retries."""

    bootstrap: tuple[tuple[str, int], ...]
    """Bootstrap servers as (host, port): where to ask first, not the list of brokers."""
    client_id: str = "raylog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """Longest wait for the answer to a request."""
    operation_timeout_ms: int = 60_000
    """Longest time for one call, including all its requests and retries."""
    retry_backoff_ms: int = 50
    """First pause before a retry; doubles up to `retry_backoff_max_ms`."""
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    """Connections idle for longer are reopened before use: brokers close them after 600,000 ms."""
    reconnect_backoff_ms: int = 50
    """First pause before reconnecting to a broker after a failure; doubles with each failure."""
    reconnect_backoff_max_ms: int = 1_000
    metadata_recovery_strategy: str = "rebootstrap"
    """If no known broker answers: "rebootstrap" from `bootstrap` (KIP-899), or "none"."""
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    """Rebootstrap after this long without metadata from any known broker."""
    security: SecuritySettings = field(default_factory=SecuritySettings)
    """TLS and SASL; by default neither is used."""

    def __post_init__(self) -> None:
        for first, last in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ):
            require_order(self, first, last)
        require_choice(self, "metadata_recovery_strategy", ("rebootstrap", "none"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerSettings(Values):
    """Settings for batching, sending and retrying records."""

    acks: int = ACKS_ALL
    """Who acknowledges: 0: nobody; 1: the leader; -1: all in-sync replicas."""
    codec: Codec = Codec.NONE
    codec_level: int | None = None
    batch_bytes: int = 128 * 1024
    """Size at which a batch is sent, before compression."""
    linger_ms: int = 5
    """Longest time that a batch waits for more records before it is sent."""
    record_bytes_max: int = 100 * 1024 * 1024
    """Largest record, uncompressed; for a larger one `send` raises RecordTooLarge.

    The default equals the brokers' `socket.request.max.bytes`: a broker closes the connection on a
    larger request and does not say why."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Most bytes of unacknowledged records; beyond it `send` waits, for up to `max_block_ms`."""
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    """Time from `send` to acknowledgement, retries included; then the batch fails, even in flight.

    Unlike in Kafka's producer, a batch fails only if it, or a batch ahead of it, was tried. It
    never fails just because the process was stopped or its event loop was busy for that long: if it
    was already that old at the first try, its time starts there."""
    in_flight_max: int = 5
    """Most unanswered requests per broker."""
    retries: int = 2**31 - 1
    """How often to resend a batch before it fails, within `delivery_timeout_ms`."""
    idempotent: bool | None = None
    """Retries cause no duplicates and keep the order; None: if the other settings allow it."""
    metadata_max_idle_ms: int = 300_000
    """Forget a topic's metadata after this long without a send; the next send looks it up again."""
    transactional_id: str | None = None
    """Id for transactions; a second producer with the same id fences the first (KIP-98)."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that stays open for longer."""
    partitioner: str = "default"
    """"default": by key as in Kafka's clients, else sticky (KIP-794); others: PARTITIONERS."""
    partitioner_ignore_keys: bool = False
    """Ignore keys when choosing partitions."""
    partitioner_adaptive: bool = True
    """Send fewer records to partitions whose brokers are slow (KIP-794)."""
    partitioner_availability_timeout_ms: int = 0
    """Avoid partitions whose broker accepted nothing for this long; 0: never avoid any."""
    interceptors: tuple[str, ...] = ()
    """Names under which packages have registered interceptors."""

    def __post_init__(self) -> None:
        if self.acks not in (0, 1, ACKS_ALL):
            raise InvalidSetting(f"expected acks 0, 1 or -1 (all), found {self.acks}")
        if self.in_flight_max < 1:
            raise InvalidSetting(f"expected in_flight_max of 1 or more, found {self.in_flight_max}")
        require_choice(self, "partitioner", PARTITIONERS)
        known = LEVELS.get(self.codec)
        if known is not None and self.codec_level not in (None, known.default):
            level = self.codec_level
            if not known.low <= level <= known.high:
                raise InvalidSetting(
                    f"expected a level of {self.codec.label} of {known.low} to {known.high}, found "
                    f"{level}"
                )
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
        """The effective value of `idempotent`."""
        return self.idempotent is not False and self._contradiction() is None

    def _contradiction(self) -> str | None:
        """Return the requirement of idempotence that the settings violate, or None."""
        if self.acks != ACKS_ALL:
            return f"acks=-1 (all), found {self.acks}"
        if self.retries < 1:
            return f"retries of 1 or more, found {self.retries}"
        if self.in_flight_max > _IN_FLIGHT_IDEMPOTENT_MAX:
            found = f"found in_flight_max={self.in_flight_max}"
            return f"1 to {_IN_FLIGHT_IDEMPOTENT_MAX} requests in flight, {found}"
        return None


def require_choice(settings: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise InvalidSetting unless a setting is one of these words."""
    found = getattr(settings, name)
    if found not in choices:
        *others, last = map(repr, choices)
        raise InvalidSetting(f"expected {name} {', '.join(others)} or {last}, found {found!r}")


def require_order(settings: object, first: str, last: str) -> None:
    """Raise InvalidSetting if a lower bound exceeds its upper bound."""
    low, high = getattr(settings, first), getattr(settings, last)
    if low > high:
        raise InvalidSetting(f"expected {first} of at most {last}={high}, found {low}")


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parse "host:port,host:port" (or a sequence of such); the default port is 9092."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_address(part.strip()) for part in parts if part.strip())
    if not addresses:
        raise InvalidSetting("bootstrap.servers: expected host:port, found no address")
    return addresses


def _address(text: str) -> tuple[str, int]:
    """Parse one address; an IPv6 host may be in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    name = bare_host(host)
    if not name or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise InvalidSetting(f"bootstrap.servers: expected host:port, found {text!r}")
    return name, int(port)


def bare_host(host: str) -> str | None:
    """Return a host without the brackets of an IPv6 address; None if it is not a valid host."""
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not is_bracketed and ":" not in host:
        return None if "/" in host else host
    from ipaddress import IPv6Address  # rarely needed, and slow to import

    try:
        return str(IPv6Address(host[1:-1] if is_bracketed else host))
    except ValueError:
        return None
