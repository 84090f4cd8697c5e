"""Brokers as `raylog doctor` reaches them: how failures are distinguished and described."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.cli.doctor import addresses
from raylog.cli.doctor.addresses import Advertised, Reached
from raylog.cli.doctor.findings import Finding, Status
from raylog.client.setting_parsing import client_only
from tests.support.certificates import Authority, authority, server_context
from tests.worlds.servers.secure_broker import PASSWORD, USER, SecureBroker

FAR = Reached(("kafka.example", 9092), ("10.0.0.5",), took_ms=3, versions={0: range(3)})
HERE = Reached(("127.0.0.1", 9092), ("127.0.0.1",), took_ms=3, versions={0: range(3)})
REFUSED = Reached(("10.0.0.6", 9092), ("10.0.0.6",), addresses.REFUSED, "refused")


def reach(port: int, host: str = "127.0.0.1", **settings: object) -> Reached:
    return asyncio.run(addresses.reach(client_only(f"{host}:{port}", settings), (host, port)))


@contextlib.contextmanager
def hanging() -> Iterator[int]:
    """A listener whose connections nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pair(signer: Authority) -> tuple[Path, Path]:
    return signer.issue("broker")


def test_a_broker_that_answers() -> None:
    with SecureBroker(advertised_host="elsewhere").running() as broker:
        found = reach(broker.port, "localhost")
    assert (found.kind, found.why) == ("", "")
    assert "127.0.0.1" in found.resolved
    assert found.brokers == ((1, ("elsewhere", broker.port)),)
    assert len(found.versions) > 10
    assert found.took_ms > 0


def test_a_name_that_does_not_resolve() -> None:
    found = reach(9092, "no-such-host.invalid")
    assert (found.kind, found.resolved) == (addresses.NAME, ())
    assert found.why
    assert reach(9092, "a" * 70).kind == addresses.NAME


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert reach(taken.getsockname()[1]).kind == addresses.REFUSED
        assert reach(taken.getsockname()[1], "localhost").kind == addresses.REFUSED


def test_nobody_answers() -> None:
    with hanging() as port:
        found = reach(port, socket_connection_setup_timeout_ms=300)
    assert found.kind == addresses.TIMEOUT


def test_something_else_than_kafka_answers() -> None:
    with SecureBroker(
        hijack=lambda sock: sock.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")
    ).running() as it:
        assert reach(it.port).kind == addresses.PROTOCOL


def test_tls_failures(signer: Authority, pair: tuple[Path, Path], tmp_path: Path) -> None:
    trusting = {"security_protocol": "SSL", "ssl_truststore_location": str(signer.certificate)}
    stranger = authority(tmp_path, "stranger")
    other = {"security_protocol": "SSL", "ssl_truststore_location": str(stranger.certificate)}
    with SecureBroker(server_context(pair)).running() as broker:
        assert reach(broker.port, **trusting).kind == ""
        assert reach(broker.port, **other).kind == addresses.TLS
        assert reach(broker.port).kind == addresses.PROTOCOL
    with SecureBroker().running() as plain:
        assert reach(plain.port, **trusting).kind == addresses.TLS


def test_login_failures() -> None:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    }
    with SecureBroker(mechanisms=("PLAIN",)).running() as broker:
        assert reach(broker.port, **login).kind == ""
        wrong = reach(broker.port, **{**login, "sasl_password": "other"})
        assert wrong.kind == addresses.LOGIN
        assert "other" not in wrong.why
        scram = reach(broker.port, **{**login, "sasl_mechanism": "SCRAM-SHA-256"})
        assert scram.kind == addresses.LOGIN
        without = reach(broker.port)
        assert "does the listener expect a login" in without.why
    with SecureBroker().running() as open_to_all:
        assert reach(open_to_all.port, **login).kind == addresses.LOGIN


def test_addresses_are_asked_once_each() -> None:
    with SecureBroker().running() as broker:
        address = ("127.0.0.1", broker.port)
        settings = client_only(broker.address, {})
        found = asyncio.run(addresses.reach_all(settings, [address, address]))
        assert [one.kind for one in found] == ["", ""]
        assert broker.connections == 1


def only(found: list[Finding]) -> Finding:
    (one,) = found
    return one


def test_bootstrap_servers_of_which_one_answers() -> None:
    well, bad = addresses.check_bootstrap([FAR, REFUSED])
    assert (well.status, well.found) == (Status.OK, "answers in 3 ms (10.0.0.5)")
    assert (bad.status, bad.found) == (Status.WARNING, "the connection is refused")
    assert "ss -ltnp" in bad.do
    assert only(addresses.check_bootstrap([REFUSED])).status is Status.FAILURE


@pytest.mark.parametrize("kind", addresses._WHAT_TO_DO)
def test_each_failure_has_something_to_do(kind: str) -> None:
    one = only(addresses.check_bootstrap([replace(REFUSED, kind=kind)]))
    assert one.do == addresses._WHAT_TO_DO[kind]


def test_a_slow_broker() -> None:
    assert only(addresses.check_bootstrap([replace(FAR, took_ms=500)])).status is Status.WARNING


@pytest.mark.parametrize(
    ("asked", "advertised", "status", "word"),
    [
        (FAR, FAR, Status.OK, "answers"),
        (HERE, HERE, Status.OK, "answers"),
        (FAR, HERE, Status.FAILURE, "loopback address, which is the client's own machine"),
        (HERE, FAR, Status.OK, "answers"),
        (FAR, replace(FAR, address=("0.0.0.0", 1)), Status.FAILURE, "not the address of a machine"),
        (FAR, replace(FAR, address=("", 1)), Status.FAILURE, "not the address of a machine"),
        (
            FAR,
            Reached(("broker-7", 1), kind=addresses.NAME, why="unknown"),
            Status.FAILURE,
            "fails at name resolution: unknown",
        ),
        (FAR, REFUSED, Status.FAILURE, "fails from this machine: the connection is refused"),
        (
            FAR,
            replace(REFUSED, kind=addresses.TLS, why="expired"),
            Status.FAILURE,
            "fails at TLS: expired",
        ),
    ],
)
def test_advertised_addresses(
    asked: Reached, advertised: Reached, status: Status, word: str
) -> None:
    one = only(addresses.check_advertised([asked], [Advertised(1, advertised)]))
    assert one.status is status
    assert word in one.found


def test_brokers_that_advertise_the_same_address() -> None:
    found = addresses.check_advertised([FAR], [Advertised(1, FAR), Advertised(2, FAR)])
    assert {one.status for one in found} == {Status.FAILURE}
    assert "several brokers" in found[0].found


def test_versions_of_brokers() -> None:
    older = replace(FAR, versions={0: range(2), 3: range(1)})
    gone = replace(REFUSED, versions={})
    same = [Advertised(1, FAR), Advertised(2, FAR), Advertised(3, gone)]
    assert only(addresses.check_versions(same)).status is Status.OK
    one = only(addresses.check_versions([*same, Advertised(4, older)]))
    assert one.status is Status.WARNING
    assert "broker 4 supports other versions than most: METADATA, PRODUCE" in one.found
    assert addresses.check_versions([Advertised(1, gone)]) == []


def test_addresses_as_texts() -> None:
    assert addresses.text_of(("::1", 9092)) == "[::1]:9092"
    assert addresses.text_of(("host", 9092)) == "host:9092"
