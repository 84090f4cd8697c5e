"""Translates confluent-kafka (librdkafka) settings: `Producer(from_confluent({...}))`.

Names that librdkafka shares with Kafka stay as they are; its own names are translated. Settings
that only tune librdkafka's internals are dropped. Any other setting without an equivalent is
refused with the reason, because a program that sets it relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from raylog.client.errors import InvalidSetting

_RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "socket.timeout.ms": "request.timeout.ms",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""librdkafka's name to Kafka's; meaning and unit are the same."""

_NO_EFFECT = {
    "api.version.request",
    "api.version.request.timeout.ms",
    "debug",
    "log.queue",
    "log.thread.name",
    "log_level",
    "log.connection.close",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "socket.max.fails",
    "enable.sparse.connections",
    "topic.metadata.refresh.sparse",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.propagation.max.ms",
    "queue.buffering.backpressure.threshold",
    "queued.min.messages",
    "fetch.queue.backoff.ms",
    "fetch.error.backoff.ms",
    "coordinator.query.interval.ms",
    "message.copy.max.bytes",
    "max.in.flight.requests.per.connection.reset",
}
"""Settings of librdkafka's internals, with no effect that a program can see."""

_UNSUPPORTED = {
    "batch.num.messages": "batches are bounded by bytes alone: set batch.size",
    "queue.buffering.max.messages": "the buffer is bounded by bytes alone: set "
    "queue.buffering.max.kbytes",
    "enable.gapless.guarantee": "a batch that fails does not stop the producer: use transactions",
    "delivery.report.only.error": "on_delivery is called for each record: look at its error",
    "dr_cb": "give on_delivery=... to the constructor",
    "dr_msg_cb": "give on_delivery=... to the constructor",
    "on_delivery": "give on_delivery=... to the constructor",
    "error_cb": "failures are raised by the call that meets them",
    "stats_cb": "call statistics()",
    "throttle_cb": "call statistics()",
    "statistics.interval.ms": "call statistics()",
    "log_cb": "log records go to the logger 'raylog.client'",
    "logger": "log records go to the logger 'raylog.client'",
    "oauth_cb": "OAUTHBEARER is not supported",
    "rebalance_cb": "give a listener to subscribe",
    "on_commit": "give a callback to commit_async",
    "offset_commit_cb": "give a callback to commit_async",
    "enable.partition.eof": "a poll that returns nothing says nothing about the end: compare "
    "position with end_offsets",
    "offset.store.method": "offsets are stored by brokers alone",
    "offset.store.path": "offsets are stored by brokers alone",
    "offset.store.sync.interval.ms": "offsets are stored by brokers alone",
    "topic.blacklist": "give subscribe a pattern that leaves them out",
    "broker.address.family": "the system's resolver orders addresses",
    "broker.address.ttl": "addresses are resolved at each connection",
    "broker.version.fallback": "brokers before Kafka 2.1 are not supported",
    "ssl.key.pem": "write it to a PEM file: ssl.key.location",
    "ssl.certificate.pem": "write it to a PEM file: ssl.keystore.location",
    "ssl.curves.list": "give an ssl.SSLContext as ssl_context=...",
    "ssl.sigalgs.list": "give an ssl.SSLContext as ssl_context=...",
    "ssl.crl.location": "give an ssl.SSLContext as ssl_context=...",
    "ssl.ca.certificate.stores": "give an ssl.SSLContext as ssl_context=...",
    "ssl.engine.location": "give an ssl.SSLContext as ssl_context=...",
    "plugin.library.paths": "librdkafka's plug-ins are native code",
    "message.max.queued": "the buffer is bounded by bytes alone: set queue.buffering.max.kbytes",
    "receive.message.max.bytes": "answers are bounded by the fetch settings",
    "consume.callback.max.messages": "poll instead",
    "opaque": "close over what a callback needs",
}

_PARTITIONERS = ("consistent_random", "consistent", "murmur2_random", "murmur2", "random")
_RESETS = {
    "smallest": "earliest",
    "beginning": "earliest",
    "earliest": "earliest",
    "largest": "latest",
    "end": "latest",
    "latest": "latest",
    "error": "none",
}


def knows(name: str) -> bool:
    """Whether a name is, or was, a librdkafka setting that Kafka does not have."""
    return name in _RENAMED or name in _NO_EFFECT or name in _UNSUPPORTED or name in _SPECIAL


def from_confluent(config: Mapping[str, object]) -> dict[str, object]:
    """Return a mapping for a client's first argument; raises InvalidSetting.

    A consumer (recognized by its group.id) starts at the latest offset and reads only committed
    records by default, as in librdkafka.
    """
    translated: dict[str, object] = {}
    for name, value in _flattened(config).items():
        for kafka_name, kafka_value in _translate(name, value).items():
            if kafka_name in translated and translated[kafka_name] != kafka_value:
                raise InvalidSetting(f"{kafka_name} was given twice, as {name} too")
            translated[kafka_name] = kafka_value
    if "group.id" in translated:
        translated.setdefault("auto.offset.reset", "latest")
        translated.setdefault("isolation.level", "read_committed")
    _fit_timeouts(translated)
    return translated


def _flattened(config: Mapping[str, object]) -> dict[str, object]:
    """Merge in the topic settings, which old programs keep in a nested mapping."""
    flat = dict(config)
    inner = flat.pop("default.topic.config", None)
    if inner is not None:
        if not isinstance(inner, Mapping):
            raise InvalidSetting(f"default.topic.config: expected a mapping, found {inner!r}")
        flat = {**inner, **flat}
    return flat


def _translate(name: str, value: object) -> dict[str, object]:
    """Translate a librdkafka setting to zero or more of Kafka's."""
    if name in _UNSUPPORTED:
        raise InvalidSetting(f"{name} has no equivalent: {_UNSUPPORTED[name]}")
    if name in _NO_EFFECT:
        return {}
    special = _SPECIAL.get(name)
    if special is not None:
        return special(value)
    return {_RENAMED.get(name, name): value}


def _linger(value: object) -> dict[str, object]:
    """Round up fractions of a millisecond, which librdkafka accepts."""
    return {"linger.ms": math.ceil(_number("linger.ms", value))}


def _kibibytes(name: str, kafka_name: str) -> Callable[[object], dict[str, object]]:
    def translate(value: object) -> dict[str, object]:
        return {kafka_name: int(_number(name, value)) * 1024}

    return translate


def _message_timeout(value: object) -> dict[str, object]:
    """Translate a timeout; 0 means no timeout."""
    timeout_ms = int(_number("message.timeout.ms", value))
    return {"delivery.timeout.ms": timeout_ms or 2**31 - 1}


def _partitioner(value: object) -> dict[str, object]:
    if value not in _PARTITIONERS:
        raise InvalidSetting(
            f"partitioner={value!r} has no equivalent: known are {', '.join(_PARTITIONERS)}"
        )
    return {"partitioner.class": "default" if value == "murmur2_random" else value}


def _reset(value: object) -> dict[str, object]:
    if str(value).lower() not in _RESETS:
        raise InvalidSetting(f"auto.offset.reset: expected {', '.join(_RESETS)}, found {value!r}")
    return {"auto.offset.reset": _RESETS[str(value).lower()]}


def _verification(value: object) -> dict[str, object]:
    if str(value).lower() != "true":
        raise InvalidSetting(
            "enable.ssl.certificate.verification=false has no equivalent: give an ssl.SSLContext "
            "that verifies nothing as ssl_context=..."
        )
    return {}


def _auto_commit_interval(value: object) -> dict[str, object]:
    """Translate the interval; in librdkafka, 0 turns automatic commits off."""
    if int(_number("auto.commit.interval.ms", value)) == 0:
        return {"enable.auto.commit": False}
    return {"auto.commit.interval.ms": value}


def _auto_offset_store(value: object) -> dict[str, object]:
    """Accept true, our only behaviour; false means that the program stores offsets itself."""
    if str(value).lower() == "true":
        return {}
    raise InvalidSetting(
        "enable.auto.offset.store=false has no equivalent: set enable.auto.commit=false and commit "
        "what is done, or process with raylog.client.parallel"
    )


_SPECIAL: dict[str, Callable[[object], dict[str, object]]] = {
    "linger.ms": _linger,
    "queue.buffering.max.ms": _linger,
    "queue.buffering.max.kbytes": _kibibytes("queue.buffering.max.kbytes", "buffer.memory"),
    "queued.max.messages.kbytes": _kibibytes("queued.max.messages.kbytes", "fetch.prefetch.bytes"),
    "message.timeout.ms": _message_timeout,
    "delivery.timeout.ms": _message_timeout,
    "partitioner": _partitioner,
    "auto.offset.reset": _reset,
    "security.protocol": lambda value: {"security.protocol": str(value).upper()},
    "enable.ssl.certificate.verification": _verification,
    "auto.commit.interval.ms": _auto_commit_interval,
    "enable.auto.offset.store": _auto_offset_store,
}


def _number(name: str, value: object) -> float:
    """Return a number, which may be given as text."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError  # noqa: TRY301, TRY004  # one kind of failure below
        number = float(value)
    except ValueError:
        raise InvalidSetting(f"{name}: expected a number, found {value!r}") from None
    if not 0 <= number < math.inf:
        raise InvalidSetting(f"{name}: expected 0 or more, found {value!r}")
    return number


def _fit_timeouts(translated: dict[str, object]) -> None:
    """Lower request.timeout.ms if delivery.timeout.ms leaves no room for it.

    Kafka requires delivery.timeout.ms >= linger.ms + request.timeout.ms; librdkafka does not.
    """
    if "delivery.timeout.ms" not in translated:
        return
    delivery_ms = _number("delivery.timeout.ms", translated["delivery.timeout.ms"])
    linger_ms = _number("linger.ms", translated.get("linger.ms", 5))
    room_ms = int(delivery_ms - linger_ms)
    if room_ms < 1:
        raise InvalidSetting(
            f"message.timeout.ms={int(delivery_ms)} must be above linger.ms={int(linger_ms)}"
        )
    request_ms = _number("request.timeout.ms", translated.get("request.timeout.ms", 30_000))
    translated["request.timeout.ms"] = min(int(request_ms), room_ms)
