"""The pydantic models at the edge, from the same tables."""

import pytest

from raylog.actors.config import BROKER_KEYS, TOPIC_KEYS
from raylog.actors.config_models import (
    broker_settings,
    broker_settings_model,
    topic_settings,
    topic_settings_model,
)
from raylog.wire.errors import InvalidConfig


def test_values_of_a_file_become_text() -> None:
    settings = broker_settings(
        {
            "num.partitions": 4,
            "listeners": ["PLAINTEXT://127.0.0.1:0"],
            "auto.create.topics.enable": False,
            "compression.gzip.level": "-1",
            "broker.rack": "r1",
        }
    )
    assert settings.given == {
        "auto.create.topics.enable": "false",
        "broker.rack": "r1",
        "compression.gzip.level": "-1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "num.partitions": "4",
    }


def test_topic_values_of_a_file_become_text() -> None:
    assert topic_settings({"cleanup.policy": "compact,delete", "retention.ms": 5}) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5",
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num.partition": 1}, r"did you mean num.partitions\?"),
        ({"num.partitions": 0}, "Invalid value 0 for num.partitions"),
        ({"num.partitions": "many"}, "Invalid value many for configuration num.partitions: Not a"),
        ({"compression.gzip.level": 77}, "between 1 and 9"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        broker_settings(values)


def test_a_wrong_topic_setting_is_named() -> None:
    with pytest.raises(
        InvalidConfig,
        match=r"Invalid value x for configuration cleanup\.policy: String must be one of",
    ):
        topic_settings({"cleanup.policy": "x"})


def test_the_models_have_every_key_with_its_text() -> None:
    for model, keys in (
        (broker_settings_model(), BROKER_KEYS),
        (topic_settings_model(), TOPIC_KEYS),
    ):
        fields = {field.alias: field for field in model.model_fields.values()}
        assert set(fields) == set(keys)
        assert all(fields[name].description == key.documentation for name, key in keys.items())
        model().model_dump()  # every default is a value of its field
