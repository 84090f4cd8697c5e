"""`raylog brokers add`: what a new broker copies from the others."""

from __future__ import annotations

from raylog.actors.metadata.records import BrokerWanted
from raylog.cli.brokers_on_ray import _common


def test_a_new_broker_takes_what_is_not_anothers_alone() -> None:
    settings = {
        "listeners": "PLAINTEXT://h:1",
        "advertised.listeners": "PLAINTEXT://i:1",
        "broker.rack": "a",
        "num.partitions": "3",
    }
    assert _common(BrokerWanted(0, {}, "/d", settings, 1, 1)) == {"num.partitions": "3"}
