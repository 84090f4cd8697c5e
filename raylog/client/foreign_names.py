"""Other Python clients' names for our settings, for messages about unknown settings."""

from __future__ import annotations

from raylog.client.librdkafka import knows

_OURS = {
    "ssl.cafile": "ssl.truststore.location",
    "ssl.cadata": "ssl.truststore.certificates",
    "ssl.certfile": "ssl.keystore.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.ciphers": "ssl.cipher.suites",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "max.batch.size": "batch.size",
    "api.version": None,
    "api.version.auto.timeout.ms": None,
    "loop": None,
}
"""Names in kafka-python and aiokafka, dotted; None: nothing needs to be set."""


def advice_on(name: str) -> str | None:
    """Return what to set instead of another client's setting, given its dotted name."""
    if name in _OURS:
        ours = _OURS[name]
        if ours is None:
            return "leave it out: the client finds this out by itself"
        return f"the name here is {ours!r}, or {ours.replace('.', '_')!r}"
    if knows(name):
        return "this is a name of librdkafka: pass the mapping through from_confluent(...)"
    return None
