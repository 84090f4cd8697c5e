"""Plays requests about what is not served to one broker; answers are plain data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from raylog.wire.messages.metadata import MetadataRequest
from tests.differential.playing import Transcripts
from tests.differential.unserved_cases import cases
from tests.support.wire_client import WireClient

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-unserved.json")
BROKER = "~broker"
"""What stands for the id of the broker that was asked."""
_LONG = 60


def play(address: str) -> Transcripts:
    """Play all cases to a broker."""
    host, _, port = address.rpartition(":")
    played: Transcripts = {}
    with WireClient(host, int(port)) as client:
        (known,) = client.ask(MetadataRequest(topics=[]), 12).brokers
        broker = str(known.node_id)
        for case in cases(broker):
            name = f"{case.name} v{case.version}".replace(f"'{broker}'", f"'{BROKER}'")
            answer = client.ask(case.request, case.version)
            played[name] = [{"a": [_plain(answer, broker)]}]
    return played


def _plain(value: Any, broker: str) -> Any:
    """Fields that are set; lists in one order, since Apache Kafka's are those of hash tables."""
    if dataclasses.is_dataclass(value):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return {name: _plain(one, broker) for name, one in fields.items() if one or one is None}
    if isinstance(value, list):
        return sorted((_plain(one, broker) for one in value), key=repr)
    if isinstance(value, str):
        text = (
            BROKER if value == broker else value.replace(f"xpected {broker}", f"xpected {BROKER}")
        )
        return text if len(text) <= _LONG or " " not in text else text[:_LONG]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value
