"""Parsing listeners, and holding the port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raylog.actors.broker.listeners import (
    Listeners,
    check_reach,
    for_broker,
    is_beyond_loopback,
    read_listeners,
    release,
    reserve,
    reserve_again,
    reserve_all,
)
from raylog.actors.config import BrokerSettings
from raylog.actors.endpoints import Endpoint
from raylog.wire.errors import InvalidConfig

ANY = Endpoint("PLAINTEXT", "127.0.0.1", 0)


NAMED = {"listener.security.protocol.map": "X:PLAINTEXT,Y:PLAINTEXT"}


def read(inter_broker: str, listeners: str, advertised: str | None = None) -> Listeners:
    given = {**NAMED, "listeners": listeners, "inter.broker.listener.name": inter_broker}
    if advertised is not None:
        given["advertised.listeners"] = advertised
    return read_listeners(BrokerSettings(given))


def test_the_inter_broker_listener_is_advertised_first() -> None:
    found = read("Y", "X://a:1,Y://b:2")
    assert found.listening == (Endpoint("X", "a", 1), Endpoint("Y", "b", 2))
    assert found.advertised == (Endpoint("Y", "b", 2), Endpoint("X", "a", 1))


def test_free_ports_are_advertised_as_they_were_got_and_others_as_they_were_given() -> None:
    asked = read("X", "X://127.0.0.1:0,Y://127.0.0.1:0", "X://out:0,Y://out:7")
    held = reserve_all(asked.listening, {}, adopting=False)
    found = asked.bound_to(held)
    ports = {name: holder.getsockname()[1] for name, holder in held.items()}
    release(held)
    assert found.listening == tuple(Endpoint(one, "127.0.0.1", ports[one]) for one in ("X", "Y"))
    assert found.advertised == (Endpoint("X", "out", ports["X"]), Endpoint("Y", "out", 7))


def test_a_listener_need_not_be_advertised() -> None:
    assert read("X", "X://a:1,Y://b:2", "X://out:3").advertised == (Endpoint("X", "out", 3),)


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "[::]", "0:0::0", "::ffff:0.0.0.0", "00.0.0"])
def test_no_address_that_means_every_one_is_advertised(host: str) -> None:
    with pytest.raises(InvalidConfig, match="nonroutable meta-address"):
        read("X", f"X://{host}:1")
    with pytest.raises(InvalidConfig, match="nonroutable meta-address"):
        read("X", "X://a:1,Y://b:2", f"X://a:1,Y://{host}:2")
    assert read("X", f"X://{host}:1", "X://out:1").advertised == (Endpoint("X", "out", 1),)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "sasl_ssl"])
def test_only_plaintext_is_served(protocol: str) -> None:
    given = {
        "listeners": "X://a:1,Y://b:2",
        "inter.broker.listener.name": "X",
        "listener.security.protocol.map": f"X:PLAINTEXT,Y:{protocol}",
    }
    said = f"listener Y has the security protocol {protocol.upper()}; only PLAINTEXT is served"
    with pytest.raises(InvalidConfig, match=said):
        read_listeners(BrokerSettings(given))


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
def test_listener_beyond_loopback_requires_the_insecure_option(host: str, beyond: bool) -> None:
    assert is_beyond_loopback(host) is beyond
    advertised = {"advertised.listeners": "PLAINTEXT://out:2"}
    for listeners in (f"PLAINTEXT://{host}:1", f"PLAINTEXT://127.0.0.1:1,X://{host}:2"):
        protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:PLAINTEXT"}
        settings = BrokerSettings({"listeners": listeners, **advertised, **protocols})
        check_reach(settings, insecure=True)
        if beyond:
            with pytest.raises(InvalidConfig, match="other machines can reach"):
                check_reach(settings, insecure=False)
        else:
            check_reach(settings, insecure=False)


@contextmanager
def reserved(endpoint: Endpoint, *, adopting: bool = False) -> Iterator[Endpoint]:
    with reserve(endpoint, adopting=adopting) as holder:
        yield endpoint._replace(port=holder.getsockname()[1])


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
        held = ANY._replace(port=holder.getsockname()[1])
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
                pytest.raises(
                    InvalidConfig, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}"
                ),
                reserved(ANY._replace(port=port), adopting=adopting),
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
            reserve_again(ANY._replace(port=port), 1, adopting=False)


def test_each_listener_gets_its_own_last_port_again_and_all_are_held_or_none() -> None:
    listening = (ANY, ANY._replace(listener="X"))
    held = reserve_all(listening, {}, adopting=False)
    ports = {name: holder.getsockname()[1] for name, holder in held.items()}
    assert len({*ports.values()}) == 2
    release(held)
    again = reserve_all(listening, ports, adopting=False)
    assert {name: holder.getsockname()[1] for name, holder in again.items()} == ports
    release(again)
    with socket.create_server(("127.0.0.1", ports["X"])):
        wanted = (ANY._replace(port=ports["PLAINTEXT"]), listening[1]._replace(port=ports["X"]))
        with pytest.raises(InvalidConfig, match=f"cannot listen on X://127.0.0.1:{ports['X']}"):
            reserve_all(wanted, {}, adopting=False)
        reserve(wanted[0], adopting=False).close()


def test_each_broker_of_a_machine_has_the_next_ports_of_every_listener() -> None:
    given = {
        "listeners": "X://[::1]:9092, Y://:0",
        "advertised.listeners": "X://{external.host}:19092,Y://out:0",
        "num.partitions": "3",
    }
    assert for_broker(given, 0) == given
    assert for_broker(given, 2) == {
        "listeners": "X://[::1]:9094, Y://:0",
        "advertised.listeners": "X://{external.host}:19094,Y://out:0",
        "num.partitions": "3",
    }
