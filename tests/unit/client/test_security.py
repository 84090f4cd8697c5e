"""TLS and SASL over real sockets, both clients: what works, and the errors when it does not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from raylog.client import (
    Admin,
    AsyncAdmin,
    AuthenticationFailed,
    ClientError,
    InvalidSetting,
    NotConnected,
    NotKafka,
    TlsFailed,
)
from raylog.client.io import run_blocking
from raylog.client.security.settings import MECHANISMS
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    IllegalSaslState,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from tests.support.certificates import (
    KEY_PASSWORD,
    Authority,
    authority,
    encrypted_key,
    server_context,
)
from tests.worlds.servers.secure_broker import PASSWORD, USER, SecureBroker

Settings = Mapping[str, object]
Look = Callable[[str, Settings], list[int]]
"""Ask for metadata once: the brokers' ids."""


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pair(signer: Authority) -> tuple[Path, Path]:
    return signer.issue("broker")


def blocking(address: str, settings: Settings) -> list[int]:
    with Admin(address, **settings) as admin:
        return sorted(admin.metadata().nodes)


def streaming(address: str, settings: Settings) -> list[int]:
    async def run() -> list[int]:
        async with AsyncAdmin(address, **settings) as admin:
            return sorted((await admin.metadata()).nodes)

    return asyncio.run(run())


@pytest.fixture(params=[blocking, streaming])
def look(request: pytest.FixtureRequest) -> Look:
    found: Look = request.param
    return found


@pytest.fixture
def trusting(signer: Authority) -> dict[str, object]:
    return {"security_protocol": "SSL", "ssl_truststore_location": str(signer.certificate)}


def login(mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> dict[str, object]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": password,
    }


# -- TLS ---------------------------------------------------------------------------------------


def test_tls(look: Look, pair: tuple[Path, Path], trusting: Settings) -> None:
    with SecureBroker(server_context(pair)).running() as broker:
        assert look(broker.address, trusting) == [1]
        assert look(f"localhost:{broker.port}", trusting) == [1]


def test_a_context_of_the_program(look: Look, pair: tuple[Path, Path], signer: Authority) -> None:
    context = ssl.create_default_context(cafile=str(signer.certificate))
    with SecureBroker(server_context(pair)).running() as broker:
        settings = {"security_protocol": "SSL", "ssl_context": context}
        assert look(broker.address, settings) == [1]


def test_certificates_as_text(look: Look, pair: tuple[Path, Path], signer: Authority) -> None:
    text = signer.certificate.read_text()
    with SecureBroker(server_context(pair)).running() as broker:
        settings = {"security_protocol": "SSL", "ssl_truststore_certificates": text}
        assert look(broker.address, settings) == [1]


def test_a_broker_that_wants_a_certificate(
    look: Look, signer: Authority, pair: tuple[Path, Path], trusting: Settings
) -> None:
    certificate, key = signer.issue("client")
    own = {
        "ssl_keystore_location": str(certificate),
        "ssl_key_location": str(encrypted_key(key)),
        "ssl_key_password": KEY_PASSWORD,
    }
    with SecureBroker(server_context(pair, signer.certificate)).running() as broker:
        assert look(broker.address, {**trusting, **own}) == [1]
        with pytest.raises(NotConnected, match=r"certificate required|ended the connection"):
            look(broker.address, trusting)
        with pytest.raises(InvalidSetting, match="ssl_keystore_location: expected a certificate"):
            look(broker.address, {**trusting, **own, "ssl_key_password": "wrong"})


@pytest.mark.parametrize(
    ("hosts", "days", "found"),
    [
        ("DNS:localhost,IP:127.0.0.1", -1, "certificate has expired"),
        ("DNS:elsewhere.example", 2, "IP address mismatch, certificate is not valid for"),
    ],
)
def test_certificates_that_are_not_valid(  # fixtures beside the cases
    look: Look, signer: Authority, trusting: Settings, hosts: str, days: int, found: str
) -> None:
    bad = signer.issue(f"bad{days}", hosts, days)
    with (
        SecureBroker(server_context(bad)).running() as broker,
        pytest.raises(ClientError, match=f"valid, trusted and for '127.0.0.1', found: {found}"),
    ):
        look(broker.address, trusting)


def test_the_name_in_a_certificate_can_be_ignored(
    look: Look, signer: Authority, trusting: Settings
) -> None:
    other = signer.issue("other", "DNS:elsewhere.example")
    any_host = {**trusting, "ssl_endpoint_identification_algorithm": ""}
    with SecureBroker(server_context(other)).running() as broker:
        assert look(broker.address, any_host) == [1]


def test_a_stranger_s_certificate(look: Look, tmp_path: Path, pair: tuple[Path, Path]) -> None:
    stranger = authority(tmp_path, "stranger")
    settings = {"security_protocol": "SSL", "ssl_truststore_location": str(stranger.certificate)}
    with (
        SecureBroker(server_context(pair)).running() as broker,
        pytest.raises(ClientError, match="found: unable to get local issuer certificate"),
    ):
        look(broker.address, settings)


def test_a_broker_that_metadata_names_must_have_its_name_in_its_certificate(
    signer: Authority, trusting: Settings
) -> None:
    """The certificate says localhost: a broker that calls itself 127.0.0.1 is not believed."""
    named = server_context(signer.issue("named", "DNS:localhost"))
    with (
        SecureBroker(named).running() as broker,
        Admin(f"localhost:{broker.port}", **trusting) as admin,
    ):
        assert sorted(admin.metadata().nodes) == [1]
        with pytest.raises(TlsFailed, match=r"for '127.0.0.1', found: IP address mismatch"):
            run_blocking(admin._opened[0][0].api_versions(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_truststore_location": "/nowhere.pem"}, "expected a file, found none at /nowhere"),
        ({"ssl_truststore_location": "/trust.jks"}, "expected a PEM file, found /trust.jks"),
        ({"ssl_truststore_location": __file__}, "ssl_truststore_location: expected PEM"),
        ({"ssl_truststore_certificates": "no"}, "ssl_truststore_certificates: expected PEM"),
        ({"ssl_cipher_suites": "no"}, "ssl_cipher_suites: expected OpenSSL's list"),
    ],
)
def test_files_that_are_no_certificates(settings: Settings, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        Admin("localhost:1", security_protocol="SSL", **settings)


# -- the wrong listener -------------------------------------------------------------------------


def test_tls_to_a_listener_without(look: Look, trusting: Settings) -> None:
    """A Kafka broker takes the handshake for a length, and ends the connection."""
    with (
        SecureBroker().running() as broker,
        pytest.raises(NotConnected, match="expected a TLS handshake, found the connection ended"),
    ):
        look(broker.address, trusting)


def test_tls_to_something_that_answers_in_plain_text(look: Look, trusting: Settings) -> None:
    def answer(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        SecureBroker(hijack=answer).running() as broker,
        pytest.raises(ClientError, match="expected a listener with TLS, found one that answers"),
    ):
        look(broker.address, trusting)


def test_plaintext_client_at_a_tls_listener_is_told_to_use_tls(
    look: Look, pair: tuple[Path, Path]
) -> None:
    with (
        SecureBroker(server_context(pair)).running() as broker,
        pytest.raises(ClientError, match=r"expect(s|) TLS .security.protocol SSL or SASL_SSL"),
    ):
        look(broker.address, {})


def test_a_tls_alert_is_known(look: Look) -> None:
    def alert(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"\x15\x03\x03\x00\x02\x02\x50")

    with (
        SecureBroker(hijack=alert).running() as broker,
        pytest.raises(ClientError, match="found a TLS alert: this listener expects TLS"),
    ):
        look(broker.address, {})


def test_client_without_login_at_a_sasl_listener_gets_a_hint(look: Look) -> None:
    with (
        SecureBroker(mechanisms=MECHANISMS).running() as broker,
        pytest.raises(NotConnected, match="does the listener expect a login"),
    ):
        look(broker.address, {})


def test_a_login_at_a_listener_that_wants_none(look: Look) -> None:
    with (
        SecureBroker().running() as broker,
        pytest.raises(IllegalSaslState, match="expected a listener with SASL, found one without"),
    ):
        look(broker.address, login())


# -- SASL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_logging_in(look: Look, mechanism: str) -> None:
    with SecureBroker(mechanisms=MECHANISMS).running() as broker:
        assert look(broker.address, login(mechanism)) == [1]


def test_logging_in_under_tls(look: Look, pair: tuple[Path, Path], trusting: Settings) -> None:
    both = {**trusting, **login(), "security_protocol": "SASL_SSL"}
    with SecureBroker(server_context(pair), MECHANISMS).running() as broker:
        assert look(broker.address, both) == [1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(look: Look, mechanism: str) -> None:
    with (
        SecureBroker(mechanisms=MECHANISMS).running() as broker,
        pytest.raises(SaslAuthenticationFailed) as failed,
    ):
        look(broker.address, login(mechanism, "guess"))
    assert f"{mechanism} as 'ann' at 127.0.0.1:" in str(failed.value)
    assert "Invalid username or password" in str(failed.value)
    assert "guess" not in str(failed.value)


def test_a_mechanism_that_the_broker_does_not_offer(look: Look) -> None:
    with (
        SecureBroker(mechanisms=("PLAIN", "OAUTHBEARER")).running() as broker,
        pytest.raises(
            UnsupportedSaslMechanism,
            match=r"of the broker's, PLAIN, OAUTHBEARER, found SCRAM-SHA-512",
        ),
    ):
        look(broker.address, login())


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        ("iterations", "expected 4096 to 262144 iterations, found '1'"),
        ("signature", "the broker does not know the password"),
        ("endless", "expected r=, s= and i="),
    ],
)
def test_brokers_that_lie(look: Look, lie: str, found: str) -> None:
    with (
        SecureBroker(mechanisms=MECHANISMS, lie=lie).running() as broker,
        pytest.raises(ClientError, match=found) as failed,
    ):
        look(broker.address, login())
    assert isinstance(failed.value, AuthenticationFailed | NotConnected)
    assert ApiKey.METADATA not in broker.seen


@pytest.mark.long
def test_a_session_is_renewed_on_its_connection() -> None:
    """KIP-368: before its lifetime is over, and only then."""
    with (
        SecureBroker(mechanisms=MECHANISMS, lifetime_ms=2_000).running() as broker,
        Admin(broker.address, **login()) as admin,
    ):
        began = time.monotonic()
        logins = []
        while time.monotonic() - began < 4.5:
            admin.metadata()
            logins.append(broker.seen.count(ApiKey.SASL_HANDSHAKE))
        assert 3 <= logins[-1] <= 4
        assert logins[0] == 1
        assert broker.connections == 1


def test_a_session_that_cannot_be_renewed_ends() -> None:
    with (
        SecureBroker(mechanisms=MECHANISMS, lifetime_ms=1_100).running() as broker,
        Admin(broker.address, **login(), default_api_timeout_ms=5_000) as admin,
    ):
        admin.metadata()
        broker.mechanisms = ("PLAIN",)

        def ask_on() -> None:
            while True:  # until the session must be renewed
                admin.metadata()

        with pytest.raises(KafkaError, match=r"expected a sasl.mechanism of the broker's, PLAIN"):
            ask_on()


# -- brokers that hang, or answer half ----------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "SSL"}, "no TLS handshake in"),
        (login(), "does not answer API_VERSIONS in time"),
    ],
)
def test_a_broker_that_hangs(look: Look, settings: Settings, message: str) -> None:
    hung = threading.Event()

    def hang(sock: socket.socket) -> None:
        hung.wait(20)

    with SecureBroker(hijack=hang).running() as broker:
        began = time.monotonic()
        with pytest.raises(NotConnected, match=message):
            look(broker.address, {**settings, "socket_connection_setup_timeout_ms": 300})
        assert time.monotonic() - began < 5
        hung.set()


def test_a_handshake_that_drips_ends_in_time(look: Look) -> None:
    """Bytes now and then do not lengthen the time for the whole."""

    def drip(sock: socket.socket) -> None:
        sock.sendall(b"\x16\x03\x03\x40\x00")
        for _ in range(200):
            sock.sendall(b"\x00")
            time.sleep(0.05)

    settings = {"security_protocol": "SSL", "socket_connection_setup_timeout_ms": 400}
    with SecureBroker(hijack=drip).running() as broker:
        began = time.monotonic()
        with pytest.raises(ClientError):
            look(broker.address, settings)
        assert time.monotonic() - began < 5


def test_a_broker_that_answers_half(look: Look) -> None:
    def half(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"\0\0\1\0\0\0\0\0\0\0")
        sock.shutdown(socket.SHUT_RDWR)

    with (
        SecureBroker(hijack=half).running() as broker,
        pytest.raises(NotConnected, match="ended the connection"),
    ):
        look(broker.address, {})


def test_a_first_answer_that_is_too_long_is_not_waited_for(look: Look) -> None:
    def long(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"\x10\0\0\0\0\0\0\0")
        sock.recv(1 << 16)

    with (
        SecureBroker(hijack=long).running() as broker,
        pytest.raises((NotKafka, NotConnected), match="found a length of 268435456"),
    ):
        look(broker.address, {})
