"""TLS and SASL at a live Apache Kafka: `make peers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import ApacheKafka, free_ports
from raylog.client import (
    EARLIEST,
    Admin,
    ClientError,
    NewTopic,
    ScramMechanism,
    ScramUpsertion,
    TlsFailed,
    TopicPartition,
)
from raylog.client.security.settings import MECHANISMS
from raylog.wire.errors import SaslAuthenticationFailed
from tests.conformance.tools import java_tools
from tests.support.certificates import Authority, authority

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
USER, PASSWORD = "ann", "secret"
MODULES = "org.apache.kafka.common.security"
REAUTHENTICATION_MS = 3_000


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(signer: Authority) -> Iterator[str]:
    """The address of its listener with SASL_SSL."""
    java_tools()
    certificate, key = signer.issue("kafka")
    store = Path(signer.directory / "kafka.store.pem")
    store.write_text(key.read_text() + certificate.read_text())
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    scram = f"{MODULES}.scram.ScramLoginModule required;"
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
    settings = {
        "listener.security.protocol.map": protocols,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
        "connections.max.reauth.ms": str(REAUTHENTICATION_MS),
    }
    with ApacheKafka(settings, listeners=f"SASL_SSL://{address}").run() as peer:
        with Admin(peer.address) as admin:
            admin.create_topics([NewTopic("t")])
            _set_password(admin)
        yield address


def _set_password(admin: Admin) -> None:
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        admin.alter_user_scram_credentials([ScramUpsertion(USER, mechanism, PASSWORD)])


def settings(signer: Authority, mechanism: str, password: str = PASSWORD) -> dict[str, object]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(signer.certificate),
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_go_and_come(kafka: str, signer: Authority, mechanism: str) -> None:
    """For longer than a session lasts: it is renewed (KIP-368)."""
    with Admin(kafka, **settings(signer, mechanism)) as admin:
        producer = admin.producer()
        end = admin.list_offsets({TopicPartition("t", 0): -1})[TopicPartition("t", 0)].offset
        consumer = admin.consumer()
        consumer.assign({TopicPartition("t", 0): EARLIEST})
        seen = 0
        for number in range(20):
            producer.send("t", b"%d" % number)
            producer.flush()
            seen += sum(len(one.records) for one in consumer.poll(250))
        for _ in range(20):
            seen += sum(len(one.records) for one in consumer.poll(250))
        assert seen == end + 20


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(kafka: str, signer: Authority, mechanism: str) -> None:
    with (
        Admin(kafka, **settings(signer, mechanism, "guess")) as admin,
        pytest.raises(SaslAuthenticationFailed, match=f"{mechanism} as 'ann' at {kafka}: .*"),
    ):
        admin.metadata()


def test_the_wrong_listener(kafka: str, signer: Authority) -> None:
    with (
        Admin(kafka) as admin,
        pytest.raises(ClientError, match=r"expects? TLS \(security.protocol SSL or SASL_SSL\)"),
    ):
        admin.metadata()
    with (
        Admin(kafka, security_protocol="SSL") as admin,
        pytest.raises((TlsFailed, ClientError), match="expected a certificate that is valid"),
    ):
        admin.metadata()
    assert signer.certificate.exists()
