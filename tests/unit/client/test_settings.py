"""Errors about settings say what was expected and found."""

from collections.abc import Callable
from functools import partial

import pytest

from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.errors import InvalidSetting
from raylog.client.security.settings import SecuritySettings
from raylog.client.settings import ProducerSettings, parse_bootstrap


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, b ,[::1]:3") == (("a", 1), ("b", 9092), ("::1", 3))
    assert parse_bootstrap(["x:7", "::1:8"]) == (("x", 7), ("::1", 8))


@pytest.mark.parametrize(
    "text", ["", ",", "a:", "a:b", ":9092", "a:70000", "a:0", "a:b:9", "[a:b]:9"]
)
def test_bad_bootstrap_addresses_are_named(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected host:port"):
        parse_bootstrap(text)


Settings = Callable[..., ProducerSettings]
CONTRADICTIONS: list[tuple[Settings, str]] = [
    (partial(ProducerSettings, acks=1), r"acks=-1 \(all\), found 1"),
    (partial(ProducerSettings, retries=0), "retries of 1 or more, found 0"),
    (
        partial(ProducerSettings, in_flight_max=6),
        "1 to 5 requests in flight, found in_flight_max=6",
    ),
]


@pytest.mark.parametrize(("contradicting", "message"), CONTRADICTIONS)
def test_a_contradiction_is_an_error_if_idempotence_was_asked_for(
    contradicting: Settings, message: str
) -> None:
    """Idempotence needs acks=all, retries > 0, at most 5 in flight."""
    with pytest.raises(InvalidSetting, match=message):
        contradicting(idempotent=True)
    with pytest.raises(InvalidSetting, match=message):
        contradicting(transactional_id="id")


@pytest.mark.parametrize(("contradicting", "message"), CONTRADICTIONS)
def test_a_contradiction_turns_idempotence_off_otherwise(
    contradicting: Settings, message: str
) -> None:
    assert not contradicting().is_idempotent, message
    assert not contradicting(idempotent=False).is_idempotent
    assert ProducerSettings().is_idempotent


def test_transactions_need_a_transactional_id_and_idempotence() -> None:
    settings = ProducerSettings(transactional_id="id")
    assert settings.is_idempotent
    assert settings.transaction_timeout_ms == 60_000
    with pytest.raises(InvalidSetting, match="found idempotent=False"):
        ProducerSettings(transactional_id="id", idempotent=False)


def test_values_that_make_no_sense() -> None:
    with pytest.raises(InvalidSetting, match="acks 0, 1 or -1"):
        ProducerSettings(acks=2, idempotent=False)
    with pytest.raises(InvalidSetting, match="in_flight_max of 1 or more"):
        ProducerSettings(in_flight_max=0)


def test_reset_policies() -> None:
    with pytest.raises(InvalidSetting, match="'sometimes'"):
        ConsumerSettings(reset="sometimes")


def test_settings_are_equal_hashed_and_shown_by_their_fields_but_for_passwords() -> None:
    one, same = ProducerSettings(linger_ms=7), ProducerSettings(linger_ms=7)
    assert one == same
    assert hash(one) == hash(same)
    assert one != ProducerSettings(linger_ms=8)
    assert ProducerSettings() != ConsumerSettings()
    assert repr(one).startswith("ProducerSettings(acks=-1, codec=")
    assert "linger_ms=7" in repr(one)
    secret = SecuritySettings(
        "SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u", sasl_password="hidden"
    )
    assert "sasl_username='u'" in repr(secret)
    assert "hidden" not in repr(secret)
