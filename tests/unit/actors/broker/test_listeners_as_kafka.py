"""Listeners are parsed as Apache Kafka 4.3.1 parses them.

Kafka's answers are recorded by `python -m tests.differential.record_listeners`.
"""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.broker.listeners import Listeners, read_listeners
from raylog.actors.config import BrokerSettings
from raylog.actors.endpoints import Endpoint
from raylog.wire.errors import InvalidConfig

_RECORDED = Path(__file__).parents[3] / "differential" / "apache-kafka-4.3.1-listeners.json"
_CASES: list[dict[str, Any]] = json.loads(_RECORDED.read_text())
_REFUSED_HERE = {
    "PLAINTEXT://[::]:9092": "cannot use the nonroutable meta-address ::.",
    "PLAINTEXT://0:9092": "cannot use the nonroutable meta-address 0.",
    "PLAINTEXT://a:70000": "expected a port from 0 to 65535, found 70000",
    "PLAINTEXT://a:-1": "expected a port from 0 to 65535, found -1",
    "X://[::]:3": "cannot use the nonroutable meta-address ::.",
}
"""What Kafka takes by `listeners`, or by `advertised.listeners` if it is given: there it fails when
the port is bound, or sends clients to themselves."""
_OTHER_WORDS = {
    "": "must not be empty.",
    "PLAINTEXT://a:99999999999": "expected a port from 0 to 65535, found 99999999999",
    "SSL://a:1": "inter.broker.listener.name must be a listener name defined in",
    "PLAINTEXT://a:1,SSL://b:2": "listener SSL has the security protocol SSL; only PLAINTEXT is",
    "CONTROLLER://a:1": "No security protocol defined for listener CONTROLLER",
}
"""Refusals where Kafka speaks of its controllers' listener or of its own code."""
_OTHER_WORDS_ABOUT_PROTOCOLS = {
    "X": "expected NAME:PROTOCOL, found 'X'",
    ",X:PLAINTEXT": "expected NAME:PROTOCOL, found ''",
    "X:SSL,x:PLAINTEXT": "listener.security.protocol.map has listener X twice",
}


def _about(settings: dict[str, str]) -> str:
    return settings.get("advertised.listeners", settings["listeners"])


def _read(case: dict[str, Any]) -> Listeners:
    return read_listeners(BrokerSettings(case["settings"]))


def _name(case: dict[str, Any]) -> str:
    return " ".join(case["settings"].values())


@pytest.mark.parametrize("case", [one for one in _CASES if "refused" not in one], ids=_name)
def test_valid_listener_settings_are_parsed_as_by_kafka(case: dict[str, Any]) -> None:
    refusal = _REFUSED_HERE.get(_about(case["settings"]))
    if refusal is not None:
        with pytest.raises(InvalidConfig, match=re.escape(refusal)):
            _read(case)
        return
    found = _read(case)
    assert [list(one) for one in found.listening] == case["listening"]
    named = [[name, host or socket.gethostname(), port] for name, host, port in case["advertised"]]
    assert sorted(found.advertised) == sorted(Endpoint(*one) for one in named)
    assert found.advertised[0].listener == case["inter_broker"]


@pytest.mark.parametrize("case", [one for one in _CASES if "refused" in one], ids=_name)
def test_invalid_listener_settings_are_refused_with_kafkas_message(case: dict[str, Any]) -> None:
    settings = case["settings"]
    protocols = settings.get("listener.security.protocol.map", "")
    said = _OTHER_WORDS_ABOUT_PROTOCOLS.get(protocols) or _OTHER_WORDS.get(_about(settings))
    with pytest.raises(InvalidConfig) as refused:
        _read(case)
    if said is None:
        assert str(refused.value) == case["refused"].removeprefix("requirement failed: ")
    else:
        assert said in str(refused.value)
