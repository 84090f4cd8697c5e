"""Settings say what they expected and found."""

import pytest

from raylog.client.errors import InvalidSetting
from raylog.client.settings import ConsumerSettings, ProducerSettings, parse_bootstrap


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, b ,[::1]:3") == (("a", 1), ("b", 9092), ("::1", 3))
    assert parse_bootstrap(["x:7"]) == (("x", 7),)


@pytest.mark.parametrize("text", ["", ",", "a:", "a:b", ":9092", "a:70000", "a:0"])
def test_bad_bootstrap_addresses_are_named(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected host:port"):
        parse_bootstrap(text)


def test_contradictions_of_idempotence_are_errors() -> None:
    with pytest.raises(InvalidSetting, match="acks=-1"):
        ProducerSettings(acks=1)
    with pytest.raises(InvalidSetting, match="1 to 5 requests"):
        ProducerSettings(in_flight_max=6)
    with pytest.raises(InvalidSetting, match="acks 0, 1 or -1"):
        ProducerSettings(acks=2, idempotent=False)
    assert ProducerSettings(acks=1, idempotent=False, in_flight_max=6).acks == 1


def test_reset_policies() -> None:
    with pytest.raises(InvalidSetting, match="'sometimes'"):
        ConsumerSettings(reset="sometimes")
