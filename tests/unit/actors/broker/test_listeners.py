"""Reading listeners, and holding the port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raylog.actors.broker.listeners import Endpoint, endpoints, reserve, reserve_again
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
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "a host that clients can reach"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "a host that clients can reach"),
    ],
)
def test_wrong_listeners_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        endpoints(BrokerSettings(given))


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
        socket.create_connection((held.host, held.port), timeout=5) as client,
    ):
        listener.settimeout(5)
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
