"""Every role has a class, and names distinguish actors."""

import pytest

from raylog.actors.names import (
    BROKER,
    CONTROLLER,
    GATEWAY,
    REPLICA,
    broker_name,
    child_name,
    controller_name,
)
from raylog.actors.roles import role_class


@pytest.mark.parametrize("role", [BROKER, CONTROLLER, GATEWAY, REPLICA])
def test_every_role_has_a_class(role: str) -> None:
    for method in ("start", "stop", "link_received", "link_lost"):
        assert callable(getattr(role_class(role), method))


def test_an_unknown_role_has_none() -> None:
    with pytest.raises(KeyError):
        role_class("usher")


def test_names_say_cluster_role_broker_and_number() -> None:
    assert controller_name("c") == "c/controller"
    assert broker_name("c", 3) == "c/broker/3/0"
    assert child_name("c", REPLICA, 3, 7) == "c/replica/3/7"
