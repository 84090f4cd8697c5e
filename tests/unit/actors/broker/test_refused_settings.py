"""Settings that another build stored and this build refuses are reported once each."""

import pytest

from raylog.actors.broker.refused_settings import RefusedSettings
from raylog.actors.config import ResourceType
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ConfigChanged


def test_each_ignored_setting_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    image, settings = MetadataImage(), RefusedSettings()
    settings.tell(image)
    assert caplog.messages == []
    image.apply(ConfigChanged(ResourceType.BROKER, "", "max.connections", "0"))
    settings.tell(image)
    settings.tell(image)
    (message,) = caplog.messages
    assert message == (
        "max.connections was stored for all brokers by another build and is ignored, its default "
        "is in force: Invalid value 0 for configuration max.connections: Value must be at least "
        "1. Take it back with: raylog configs alter broker --unset max.connections"
    )
    image.apply(ConfigChanged(ResourceType.BROKER, "1", "max.connections", "-1"))
    settings.tell(image)
    assert len(caplog.messages) == 2
    assert "for broker '1' by another build" in caplog.messages[1]
    assert caplog.messages[1].endswith("raylog configs alter broker 1 --unset max.connections")
    image.apply(ConfigChanged(ResourceType.BROKER, "", "max.connections", None))
    settings.tell(image)
    image.apply(ConfigChanged(ResourceType.BROKER, "", "max.connections", "0"))
    settings.tell(image)
    assert len(caplog.messages) == 3, "it was taken back, and is there again"
