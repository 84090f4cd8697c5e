"""ACLs, quotas, users, tokens and features: a live Apache Kafka with an authorizer, and Raylog.

Raylog has none of these yet. It answers like an Apache Kafka without an authorizer, or says what it
lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.peers import ApacheKafka, free_ports
from raylog.client import (
    ANY_NAME,
    DEFAULT_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    Consumer,
    InvalidSetting,
    NewTopic,
    PatternType,
    Producer,
    QuotaEntity,
    Resource,
    ResourcePattern,
    ResourceType,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    TopicPartition,
    UpgradeType,
)
from raylog.client.security.scram import ITERATIONS_MIN
from raylog.wire.errors import (
    DelegationTokenRequestNotAllowed,
    DuplicateResource,
    InvalidConfig,
    InvalidRequest,
    InvalidUpdateVersion,
    LogDirNotFound,
    ResourceNotFound,
    SaslAuthenticationFailed,
    SecurityDisabled,
    TopicAuthorizationFailed,
    UnacceptableCredential,
    UnknownMemberId,
    UnsupportedVersion,
)
from tests.conformance.conftest import OF_KAFKA
from tests.conformance.tools import java_tools

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
PASSWORD = "correct horse"
DEADLINE_S = 30


@dataclass(frozen=True, slots=True)
class Secured:
    """An Apache Kafka with an authorizer. Clients that do not log in are super users."""

    open: str
    """The address without security."""
    login: str
    """The address that asks for SCRAM."""
    directories: tuple[str, str]

    def as_user(self, name: str, mechanism: ScramMechanism = SHA_256) -> dict[str, object]:
        """Settings of a client that logs in."""
        return {
            "bootstrap_servers": self.login,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism.sasl_name,
            "sasl_username": name,
            "sasl_password": PASSWORD,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    java_tools()
    first, second = (str(tmp_path_factory.mktemp("logs")) for _ in range(2))
    (port,) = free_ports(1)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": scram,
        "delegation.token.secret.key": "of this test",
        "log.dirs": f"{first},{second}",
    }
    login = f"127.0.0.1:{port}"
    with ApacheKafka(settings, listeners=f"SASL_PLAINTEXT://{login}").run() as peer:
        yield Secured(peer.address, login, (first, second))


@pytest.fixture
def admin(secured: Secured) -> Iterator[Admin]:
    with Admin(secured.open) as admin:
        yield admin


def until(ask: Callable[[], object], expected: object) -> None:
    """Wait until a broker has heard of a change: it applies the metadata log in its own time."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := ask()) != expected and time.monotonic() < deadline:
        pass
    assert found == expected


def with_password(admin: Admin, user: str, mechanism: ScramMechanism = SHA_256) -> None:
    """Let a user log in."""
    admin.alter_user_scram_credentials([ScramUpsertion(user, mechanism, PASSWORD)])
    expected = ScramCredential(mechanism, ITERATIONS_MIN)
    until(lambda: expected in admin.describe_user_scram_credentials().get(user, []), expected=True)


@pytest.mark.long
class TestApacheKafka:
    def test_acls_are_created_described_and_deleted(self, admin: Admin) -> None:
        prefixed = ResourcePattern(AclResourceType.TOPIC, "orders-", PatternType.PREFIXED)
        cluster = ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster")
        read = AclBinding(prefixed, "User:amy", AclOperation.READ)
        deny = AclBinding(
            cluster, "User:bob", AclOperation.ALTER_CONFIGS, AclPermission.DENY, "10.0.0.1"
        )
        every = [
            AclBinding(ResourcePattern(kind, "of-each"), "User:eve", AclOperation.DESCRIBE)
            for kind in AclResourceType
            if kind > AclResourceType.ANY and kind is not AclResourceType.CLUSTER
        ]
        assert admin.describe_acls() == []
        admin.create_acls([read, deny, *every])
        admin.create_acls([read])
        until(lambda: set(admin.describe_acls()), {read, deny, *every})
        applies = AclFilter(AclResourceType.TOPIC, "orders-eu", PatternType.MATCH)
        assert admin.describe_acls(applies) == [read]
        assert admin.describe_acls(AclFilter(resource_name="orders-eu")) == []
        assert admin.describe_acls(AclFilter(permission=AclPermission.DENY)) == [deny]
        assert admin.describe_acls(AclFilter(host="10.0.0.1")) == [deny]
        nobody = AclFilter(principal="User:nobody")
        assert admin.delete_acls([AclFilter(principal="User:amy"), applies, nobody]) == [read]
        assert set(admin.delete_acls([AclFilter()])) == {deny, *every}
        until(admin.describe_acls, [])
        with pytest.raises(InvalidRequest, match="only valid name for the CLUSTER"):
            admin.create_acls(
                [
                    AclBinding(
                        ResourcePattern(AclResourceType.CLUSTER, "x"), "User:amy", read.operation
                    )
                ]
            )
        with pytest.raises(InvalidSetting, match="expected a principal such as 'User:ann'"):
            admin.create_acls([AclBinding(prefixed, "amy", AclOperation.READ)])

    def test_an_acl_decides_who_may_write(self, admin: Admin, secured: Secured, topic: str) -> None:
        admin.create_topics([NewTopic(topic)])
        with_password(admin, "ann", SHA_512)
        with Producer(secured.as_user("ann", SHA_512), enable_idempotence=False) as producer:
            with pytest.raises(TopicAuthorizationFailed):
                producer.send_and_wait(topic, b"too early")
            acl = AclBinding(
                ResourcePattern(AclResourceType.TOPIC, topic), "User:ann", AclOperation.WRITE
            )
            admin.create_acls([acl])
            until(admin.describe_acls, [acl])
            # The topic's metadata is asked for again.
            assert producer.send_and_wait(topic, b"allowed").offset == 0
        admin.delete_acls([AclFilter()])
        until(admin.describe_acls, [])

    def test_users_come_and_go(self, admin: Admin, secured: Secured) -> None:
        with_password(admin, "sue")
        with_password(admin, "sue", SHA_512)
        two = [ScramCredential(SHA_256, ITERATIONS_MIN), ScramCredential(SHA_512, ITERATIONS_MIN)]
        assert admin.describe_user_scram_credentials(["sue"]) == {"sue": two}
        for mechanism in (SHA_256, SHA_512):
            with Admin(secured.as_user("sue", mechanism)) as known:
                known.metadata([])
        slower = ScramUpsertion("sue", SHA_256, PASSWORD, iterations=16_384)
        admin.alter_user_scram_credentials([slower])
        until(
            lambda: admin.describe_user_scram_credentials(["sue"])["sue"][0],
            ScramCredential(SHA_256, 16_384),
        )
        with Admin(secured.as_user("sue")) as known:
            known.metadata([])
        admin.alter_user_scram_credentials([ScramDeletion("sue", SHA_256)])
        until(lambda: admin.describe_user_scram_credentials(["sue"]), {"sue": two[1:]})
        with Admin(secured.as_user("sue")) as gone, pytest.raises(SaslAuthenticationFailed):
            gone.metadata([])
        with pytest.raises(ResourceNotFound, match="user 'sue'"):
            admin.alter_user_scram_credentials([ScramDeletion("sue", SHA_256)])
        with pytest.raises(DuplicateResource, match="user 'sue'"):
            admin.alter_user_scram_credentials([ScramDeletion("sue", SHA_512), slower])
        with pytest.raises(UnacceptableCredential):
            admin.alter_user_scram_credentials([ScramUpsertion("", SHA_256, PASSWORD)])

    def test_quotas_by_entity(self, admin: Admin) -> None:
        pair = QuotaEntity(user="ann", client_id=DEFAULT_NAME)
        quotas: dict[QuotaEntity, dict[str, float]] = {
            pair: {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6},
            QuotaEntity(user="ann"): {"producer_byte_rate": 5e5},
            QuotaEntity(user=DEFAULT_NAME): {"request_percentage": 50.5},
            QuotaEntity(ip="127.0.0.9"): {"connection_creation_rate": 10},
        }
        admin.alter_client_quotas(quotas, validate_only=True)
        assert admin.describe_client_quotas() == {}
        admin.alter_client_quotas(quotas)
        until(admin.describe_client_quotas, quotas)
        first, second, third, _ = quotas
        assert set(admin.describe_client_quotas(user="ann")) == {first, second}
        assert set(admin.describe_client_quotas(user="ann", strict=True)) == {second}
        assert set(admin.describe_client_quotas(user=ANY_NAME)) == {first, second, third}
        assert set(admin.describe_client_quotas(user=DEFAULT_NAME)) == {third}
        assert set(admin.describe_client_quotas(user="ann", client_id=DEFAULT_NAME)) == {first}
        admin.alter_client_quotas({pair: {"producer_byte_rate": None}})
        until(
            lambda: admin.describe_client_quotas(client_id=ANY_NAME),
            {pair: {"consumer_byte_rate": 2e6}},
        )
        with pytest.raises(InvalidRequest, match=r"quotas of user 'ann': .*nope"):
            admin.alter_client_quotas({QuotaEntity(user="ann"): {"nope": 1}})
        with pytest.raises(InvalidRequest, match="quotas of nobody"):
            admin.alter_client_quotas({QuotaEntity(): {"producer_byte_rate": 1}})
        admin.alter_client_quotas({entity: dict.fromkeys(set_) for entity, set_ in quotas.items()})
        until(admin.describe_client_quotas, {})

    def test_a_token_is_created_renewed_and_expired(self, admin: Admin, secured: Secured) -> None:
        with pytest.raises(DelegationTokenRequestNotAllowed):
            admin.create_delegation_token()  # without a login
        with_password(admin, "tom")
        with Admin(secured.as_user("tom")) as tom:
            token = tom.create_delegation_token(renewers=["User:amy"], max_lifetime_ms=3_600_000)
            assert (token.owner, token.requester) == ("User:tom", "User:tom")
            assert token.max_ms == token.issued_ms + 3_600_000
            until(tom.describe_delegation_tokens, [token])
            assert tom.describe_delegation_tokens(["User:zoe"]) == []
            assert tom.describe_delegation_tokens(["User:amy"]) == [token]  # she may renew it
            renewed_ms = tom.renew_delegation_token(token.hmac, 60_000)
            assert renewed_ms < token.expires_ms
            assert tom.expire_delegation_token(token.hmac) <= renewed_ms
            until(tom.describe_delegation_tokens, [])

    def test_a_replica_moves_to_another_directory(
        self, admin: Admin, secured: Secured, topic: str
    ) -> None:
        key = TopicPartition(topic, 0)
        admin.create_topics([NewTopic(topic)])
        (broker,) = admin.metadata([]).nodes

        def where() -> list[tuple[str, bool]]:
            return [
                (found.path, one.is_future)
                for found in admin.describe_log_dirs([broker])
                for one in found.partitions
                if (one.topic, one.partition) == key
            ]

        until(lambda: len(where()), 1)
        ((path, _),) = where()
        (other,) = set(secured.directories) - {path}
        assert admin.alter_replica_log_dirs(broker, {key: other}) == {key: None}
        until(where, [(other, False)])
        (failure,) = admin.alter_replica_log_dirs(broker, {key: "/nowhere"}).values()
        assert isinstance(failure, LogDirNotFound)
        assert not Path("/nowhere").exists()


@pytest.fixture(params=[pytest.param("kafka", marks=OF_KAFKA), "raylog"])
def cluster(request: pytest.FixtureRequest, own_clusters: Callable[[str], str]) -> str:
    """Apache Kafka without an authorizer, and Raylog."""
    return own_clusters(request.param)


class TestWithoutAnAuthorizer:
    """Requests that both answer alike."""

    def test_there_are_no_acls(self, cluster: str) -> None:
        acl = AclBinding(ResourcePattern(AclResourceType.TOPIC, "t"), "User:ann", AclOperation.READ)
        with Admin(cluster) as admin:
            with pytest.raises(SecurityDisabled, match="ACLs: No Authorizer is configured on the"):
                admin.describe_acls()
            with pytest.raises(SecurityDisabled, match=r"ALLOW READ on TOPIC 't'.*: No Authorizer"):
                admin.create_acls([acl])
            with pytest.raises(SecurityDisabled, match=r"ACLs of .*: No Authorizer"):
                admin.delete_acls([AclFilter()])

    def test_there_are_no_tokens_without_a_login(self, cluster: str) -> None:
        with Admin(cluster) as admin:
            refused: list[Callable[[], object]] = [
                admin.create_delegation_token,
                admin.describe_delegation_tokens,
                lambda: admin.renew_delegation_token(b"x"),
                lambda: admin.expire_delegation_token(b"x"),
            ]
            for call in refused:
                with pytest.raises(DelegationTokenRequestNotAllowed):
                    call()

    def test_new_cluster_has_no_passwords_or_quotas(self, cluster: str) -> None:
        with Admin(cluster) as admin:
            assert admin.describe_user_scram_credentials() == {}
            assert admin.describe_client_quotas() == {}
            with pytest.raises(ResourceNotFound):
                admin.describe_user_scram_credentials(["ann"])
            with pytest.raises(InvalidRequest, match="IP filter component"):
                admin.describe_client_quotas(user="ann", ip="127.0.0.1")

    def test_features(self, cluster: str) -> None:
        with Admin(cluster) as admin:
            features = admin.describe_features()
            lowest, highest = features.supported["transaction.version"]
            assert lowest <= features.finalized["transaction.version"] <= highest
            admin.update_features(
                {"transaction.version": 1},
                upgrade_type=UpgradeType.SAFE_DOWNGRADE,
                validate_only=True,
            )
            assert admin.describe_features().finalized == features.finalized
            for wrong in ({"transaction.version": highest + 1}, {"nope": 1}):
                with pytest.raises(InvalidUpdateVersion):
                    admin.update_features(wrong)

    def test_brokers_are_config_resources(self, cluster: str) -> None:
        with Admin(cluster) as admin:
            brokers = [Resource(ResourceType.BROKER, str(one)) for one in admin.metadata([]).nodes]
            assert sorted(admin.list_config_resources([ResourceType.BROKER]), key=str) == brokers

    def test_settings_that_are_lists(self, cluster: str, topic: str) -> None:
        resource = Resource(ResourceType.TOPIC, topic)
        with Admin(cluster) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])

            def policy() -> object:
                (value,) = (
                    entry.value
                    for entry in admin.describe_configs(resource)
                    if entry.name == "cleanup.policy"
                )
                return value

            admin.alter_configs(resource, append={"cleanup.policy": "compact"}, validate_only=True)
            assert policy() == "delete"
            admin.alter_configs(resource, append={"cleanup.policy": "compact"})
            until(policy, "delete,compact")
            admin.alter_configs(resource, subtract={"cleanup.policy": "delete"})
            until(policy, "compact")
            with pytest.raises(InvalidConfig):
                admin.alter_configs(resource, append={"retention.ms": "1"})

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_static_member_is_removed(self, cluster: str, topic: str, protocol: str) -> None:
        group = f"of-{topic}"
        settings = {
            "bootstrap_servers": cluster,
            "group_id": group,
            "group_instance_id": "one",
            "group_protocol": protocol,
            "enable_auto_commit": False,
        }
        with Admin(cluster) as admin, Consumer(settings) as one:
            admin.create_topics([NewTopic(topic, 1, 1)])
            one.subscribe([topic])
            until(lambda: one.poll_records(timeout_ms=100) or one.assignment() != [], expected=True)
            with pytest.raises(UnknownMemberId, match="member 'two'"):
                admin.remove_group_members(group, ["two"])
            admin.remove_group_members(group, ["one"], reason="its machine is gone")
            assert admin.describe_groups([group])[group].members == ()
            admin.remove_group_members(group)


def test_scram_credentials_and_quotas_are_unsupported(own_clusters: Callable[[str], str]) -> None:
    with Admin(own_clusters("raylog")) as admin:
        with pytest.raises(UnsupportedVersion, match="user 'ann': Raylog has no SCRAM credentials"):
            admin.alter_user_scram_credentials([ScramUpsertion("ann", SHA_256, PASSWORD)])
        with pytest.raises(UnsupportedVersion, match="user 'ann': Raylog has no client quotas"):
            admin.alter_client_quotas({QuotaEntity(user="ann"): {"producer_byte_rate": 1}})
