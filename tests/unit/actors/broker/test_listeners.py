"""Reading listeners, and holding the port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raylog.actors.broker.listeners import (
    Endpoint,
    check_reach,
    endpoints,
    is_beyond_loopback,
    reserve,
    reserve_again,
)
from raylog.actors.config import BrokerSettings
from raylog.wire.errors import InvalidConfig

ANY = Endpoint("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("given", "listening", "advertised"),
    [
        ({"listeners": "PLAINTEXT://h:1"}, Endpoint("h", 1), Endpoint("h", 1)),
        (
            {"listeners": "PLAINTEXT://:1"},
            Endpoint("", 1),
            Endpoint(socket.gethostname(), 1),
        ),
        (
            {"listeners": "plaintext://[::1]:0", "advertised.listeners": "PLAINTEXT://out:2"},
            Endpoint("::1", 0),
            Endpoint("out", 2),
        ),
    ],
)
def test_listeners_are_read(
    given: dict[str, str], listening: Endpoint, advertised: Endpoint
) -> None:
    assert endpoints(BrokerSettings(given)) == (listening, advertised)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"listeners": ""}, "must name one listener, not 0"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "must name one listener, not 2"),
        ({"listeners": "a:1"}, "must look like"),
        ({"listeners": "PLAINTEXT://a"}, "must look like"),
        ({"listeners": "PLAINTEXT://a:b"}, "must look like"),
        ({"listeners": "PLAINTEXT://a:70000"}, "must look like"),
        ({"listeners": "SSL://a:1"}, "only PLAINTEXT is served"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
        ({"listeners": "PLAINTEXT://[::]:1"}, "nonroutable meta-address ::"),
        ({"listeners": "PLAINTEXT://0:1"}, "nonroutable meta-address 0"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://0:0::0:1"}, "nonroutable meta-address 0:0::0"),
        ({"advertised.listeners": "PLAINTEXT://::ffff:0.0.0.0:1"}, "nonroutable meta-address"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "a host that clients can reach"),
    ],
)
def test_wrong_listeners_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        endpoints(BrokerSettings(given))


def test_every_address_may_be_listened_on_where_another_host_is_advertised() -> None:
    given = {"listeners": "PLAINTEXT://0.0.0.0:1", "advertised.listeners": "PLAINTEXT://out:2"}
    assert endpoints(BrokerSettings(given)) == (Endpoint("0.0.0.0", 1), Endpoint("out", 2))


@pytest.mark.parametrize(
    ("host", "beyond"),
    [
        ("127.0.0.1", False),
        ("127.1", False),
        ("127.255.0.7", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("localhost", False),
        ("", True),
        ("0.0.0.0", True),
        ("::", True),
        ("0", True),
        ("10.1.2.3", True),
        ("192.0.2.1", True),
        ("2001:db8::1", True),
        ("nobody.invalid", True),
    ],
)
def test_what_other_machines_can_reach_has_to_be_asked_for(host: str, beyond: bool) -> None:
    assert is_beyond_loopback(host) is beyond
    advertised = {"advertised.listeners": "PLAINTEXT://out:2"}
    settings = BrokerSettings({"listeners": f"PLAINTEXT://{host}:1", **advertised})
    check_reach(settings, insecure=True)
    if beyond:
        with pytest.raises(InvalidConfig, match="other machines can reach"):
            check_reach(settings, insecure=False)
    else:
        check_reach(settings, insecure=False)


@contextmanager
def reserved(endpoint: Endpoint, *, adopting: bool = False) -> Iterator[Endpoint]:
    with reserve(endpoint, adopting=adopting) as holder:
        yield Endpoint(endpoint.host, holder.getsockname()[1])


def gateway(endpoint: Endpoint) -> socket.socket:
    return socket.create_server((endpoint.host, endpoint.port), reuse_port=True)


def test_gateways_share_the_port_and_nobody_else_does() -> None:
    with reserved(ANY) as held:
        with pytest.raises(InvalidConfig, match="Address already in use"), reserved(held):
            pass
        with gateway(held), gateway(held):
            with pytest.raises(InvalidConfig), reserved(held):
                pass
            with pytest.raises(OSError, match="in use"):
                socket.create_server((held.host, held.port))
    with reserved(held):
        pass


def test_connections_reach_gateways_and_not_the_reservation() -> None:
    with (
        reserved(ANY) as held,
        gateway(held) as listener,
        socket.create_connection((held.host, held.port), timeout=60) as client,
    ):
        listener.settimeout(60)
        served, _ = listener.accept()
        with served:
            served.sendall(b"x")
        assert client.recv(1) == b"x"


def test_a_port_whose_gateways_outlived_the_broker_is_held_again() -> None:
    with reserve(ANY, adopting=False) as holder:
        held = Endpoint(ANY.host, holder.getsockname()[1])
        survivor = gateway(held)
    with survivor:
        with pytest.raises(InvalidConfig), reserved(held):
            pass
        with reserved(held, adopting=True):
            pass


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for adopting in (False, True):
            with (
                pytest.raises(InvalidConfig, match=f"cannot listen on 127.0.0.1:{port}"),
                reserved(Endpoint("127.0.0.1", port), adopting=adopting),
            ):
                pass


def test_a_crashed_broker_comes_back_on_its_port_if_that_is_free() -> None:
    with reserve(ANY, adopting=False) as holder:
        port = holder.getsockname()[1]
    with reserve_again(ANY, port, adopting=False) as again:
        assert again.getsockname()[1] == port
        with reserve_again(ANY, port, adopting=False) as other:
            assert other.getsockname()[1] != port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match="cannot listen"):
            reserve_again(ANY, port, adopting=True)
        with pytest.raises(InvalidConfig, match="cannot listen"):
            reserve_again(Endpoint("127.0.0.1", port), 1, adopting=False)
