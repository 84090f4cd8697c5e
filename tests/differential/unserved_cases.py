"""Requests about features that a broker without security, quotas and share groups lacks.

A case is a name and a request with its version, or several requests of one connection in order.
`broker` is the id of the broker that is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from raylog.wire.messages import alter_client_quotas as quota_changes
from raylog.wire.messages import alter_user_scram_credentials as scram_changes
from raylog.wire.messages.alter_configs import AlterableConfig as ReplacedConfig
from raylog.wire.messages.alter_configs import AlterConfigsRequest
from raylog.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from raylog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raylog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from raylog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from raylog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raylog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from raylog.wire.messages.describe_acls import DescribeAclsRequest
from raylog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from raylog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from raylog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from raylog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from raylog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.wire.messages.list_config_resources import ListConfigResourcesRequest
from raylog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from raylog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.wire.messages.sasl_handshake import SaslHandshakeRequest
from raylog.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from raylog.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from raylog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from raylog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

LOGGER, METRICS, GROUP = 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
_TOPIC = b"1" * 16


class Case(NamedTuple):
    """One request and its version."""

    name: str
    request: Any
    version: int


def cases(broker: str) -> Iterator[Case]:
    """All, in the order in which they are asked."""
    yield from _acls()
    yield from _sasl()
    yield from _tokens()
    yield from _quotas()
    yield from _scram()
    yield from _log_dirs()
    yield from _share_groups()
    yield from _described(broker)
    yield from _altered(broker)
    yield from _listed()


def _acls() -> Iterator[Case]:
    creation = AclCreation(
        resource_type=2,
        resource_name="t",
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    everything: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    for version in range(1, 4):
        yield Case("create acls", CreateAclsRequest(creations=[creation, creation]), version)
        yield Case("describe acls", DescribeAclsRequest(**everything), version)
        matching = [DeleteAclsFilter(**everything)] * 2
        yield Case("delete acls", DeleteAclsRequest(filters=matching), version)
    yield Case("create no acls", CreateAclsRequest(), 3)


def _sasl() -> Iterator[Case]:
    for version, mechanism in product(range(2), ("PLAIN", "unheard of", "")):
        name = f"handshake {mechanism}"
        yield Case(name, SaslHandshakeRequest(mechanism=mechanism), version)
    for version in range(3):
        yield Case("authenticate", SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)


def _tokens() -> Iterator[Case]:
    for version in range(1, 4):
        created = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        yield Case("create token", created, version)
        yield Case("describe tokens", DescribeDelegationTokenRequest(owners=None), version)
        yield Case("describe no tokens", DescribeDelegationTokenRequest(owners=[]), version)
    for version in range(1, 3):
        renewal = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)
        yield Case("renew token", renewal, version)
        expiry = ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1)
        yield Case("expire token", expiry, version)


def _quotas() -> Iterator[Case]:
    filters: dict[str, list[tuple[str, int, str | None]]] = {
        "all": [],
        "of a user": [("user", 0, "alice")],
        "of the default user": [("user", 1, None)],
        "of any ip": [("ip", 2, None)],
        "of a client of a user": [("user", 2, None), ("client-id", 0, "x")],
        "unknown type": [("other", 0, "x")],
        "no type": [("", 2, None)],
        "unknown match": [("user", 9, None)],
        "twice": [("user", 2, None)] * 2,
        "user and ip": [("user", 2, None), ("ip", 2, None)],
        "exactly nothing": [("user", 0, None)],
        "the default with a name": [("user", 1, "x")],
        "any with a name": [("user", 2, "x")],
    }
    for version, (name, parts) in product(range(2), filters.items()):
        components = [ComponentData(entity_type=t, match_type=m, match=x) for t, m, x in parts]
        request = DescribeClientQuotasRequest(components=components, strict=bool(parts))
        yield Case(f"quotas {name}", request, version)
    entity = [quota_changes.EntityData(entity_type="user", entity_name="a")]
    op = quota_changes.OpData(key="producer_byte_rate", value=1.0)
    changed = quota_changes.EntryData(entity=entity, ops=[op])
    change = quota_changes.AlterClientQuotasRequest(entries=[changed], validate_only=True)
    yield Case("alter quotas", change, 1)


def _scram() -> Iterator[Case]:
    for users in (None, [], ["alice"], ["bob", "", "alice"], ["alice", "bob", "alice"]):
        names = None if users is None else [UserName(name=user) for user in users]
        request = DescribeUserScramCredentialsRequest(users=names)
        yield Case(f"credentials of {users}", request, 0)
    for user, mechanism in product(("alice", ""), (0, 1, 2, 3)):
        deletion = scram_changes.ScramCredentialDeletion(name=user, mechanism=mechanism)
        upsertion = scram_changes.ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=4_096,
            salt=b"salt",
            salted_password=b"p" * 32,
        )
        removal = scram_changes.AlterUserScramCredentialsRequest(deletions=[deletion])
        yield Case(f"delete credentials {user} {mechanism}", removal, 0)
        if (user, mechanism) not in (("alice", 1), ("alice", 2)):
            change = scram_changes.AlterUserScramCredentialsRequest(upsertions=[upsertion])
            yield Case(f"set credentials {user} {mechanism}", change, 0)


def _log_dirs() -> Iterator[Case]:
    for version, path in product((1, 2), ("/nowhere", "relative", "")):
        topic = AlterReplicaLogDirTopic(name="t", partitions=[0, 1])
        moved = AlterReplicaLogDir(path=path, topics=[topic])
        yield Case(f"move to {path}", AlterReplicaLogDirsRequest(dirs=[moved]), version)


def _share_groups() -> Iterator[Case]:
    heartbeat = ShareGroupHeartbeatRequest(
        group_id="g", member_id=_MEMBER, subscribed_topic_names=["t"]
    )
    yield Case("share heartbeat", heartbeat, 1)
    described = ShareGroupDescribeRequest(group_ids=["g", "h"])
    yield Case("share groups described", described, 1)
    for version in (1, 2):
        topic = FetchTopic(topic_id=_TOPIC, partitions=[FetchPartition(partition_index=0)])
        fetched = ShareFetchRequest(group_id="g", member_id=_MEMBER, topics=[topic])
        yield Case("share fetch", fetched, version)
        part = AcknowledgePartition(partition_index=0)
        done = AcknowledgeTopic(topic_id=_TOPIC, partitions=[part])
        acknowledged = ShareAcknowledgeRequest(
            group_id="g", member_id=_MEMBER, share_session_epoch=1, topics=[done]
        )
        yield Case("share acknowledge", acknowledged, version)
    for version in (0, 1):
        asked = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        offsets = DescribeShareGroupOffsetsRequest(groups=[asked])
        yield Case("share offsets", offsets, version)
    start = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    reset = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[start])
    alteration = AlterShareGroupOffsetsRequest(group_id="g", topics=[reset])
    yield Case("share offsets altered", alteration, 0)
    gone = DeleteShareGroupOffsetsRequestTopic(topic_name="t")
    deletion = DeleteShareGroupOffsetsRequest(group_id="g", topics=[gone])
    yield Case("share offsets deleted", deletion, 0)


def _described(broker: str) -> Iterator[Case]:
    """Resources that cannot be described, and clients' metrics subscriptions."""
    named = product((METRICS, 0, 1, 7, 64, -1), ("", "m", broker))
    wrong = [(LOGGER, ""), (LOGGER, "x"), (LOGGER, "99"), (GROUP, "")]
    for kind, name in [*named, *wrong]:
        for version in (1, 4):
            resource = DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
            yield Case(f"describe {kind} {name!r}", request, version)


def _altered(broker: str) -> Iterator[Case]:
    changes: list[tuple[int, str, str, int, str | None]] = [
        (LOGGER, broker, "nosuch", SET, "INFO"),
        (LOGGER, broker, "root", SET, "LOUD"),
        (LOGGER, broker, "root", DELETE, None),
        (LOGGER, broker, "root", APPEND, "INFO"),
        (LOGGER, "99", "root", SET, "INFO"),
        (LOGGER, "x", "root", SET, "INFO"),
        (LOGGER, "", "root", SET, "INFO"),
        (METRICS, "", "metrics", SET, "a.b"),
        (METRICS, "m", "metrics", SET, "a.b"),
        (METRICS, "m", "metrics", APPEND, "c.d"),
        (METRICS, "m", "metrics", DELETE, None),
        (METRICS, "m", "interval.ms", SET, "99"),
        (METRICS, "m", "interval.ms", SET, "100"),
        (METRICS, "m", "interval.ms", SET, "3600000"),
        (METRICS, "m", "interval.ms", SET, "3600001"),
        (METRICS, "m", "interval.ms", SET, "x"),
        (METRICS, "m", "match", SET, "client_id=a.*"),
        (METRICS, "m", "match", SET, "client_id=a.*,client_source_port=9"),
        (METRICS, "m", "match", SET, "other=a"),
        (METRICS, "m", "match", SET, "client_id"),
        (METRICS, "m", "match", SET, "client_id=("),
        (METRICS, "m", "other", SET, "1"),
        (64, "x", "a", SET, "b"),
        (0, "x", "a", SET, "b"),
    ]
    for kind, name, key, operation, value in changes:
        config = AlterableConfig(name=key, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        yield Case(f"alter {kind} {name!r} {key} {operation} {value}", request, 1)
    for kind, name, key, replaced in (
        (LOGGER, broker, "root", "INFO"),
        (METRICS, "m", "metrics", "a.b"),
        (METRICS, "", "metrics", "a.b"),
        (64, "x", "a", "b"),
    ):
        whole = ReplacedResource(
            resource_type=kind,
            resource_name=name,
            configs=[ReplacedConfig(name=key, value=replaced)],
        )
        older = AlterConfigsRequest(resources=[whole], validate_only=True)
        yield Case(f"replace {kind} {name!r} {key}", older, 2)


def _listed() -> Iterator[Case]:
    yield Case("list", ListConfigResourcesRequest(), 0)
    for kind in (4, LOGGER, METRICS, GROUP, 0, 1, 64):
        yield Case(f"list {kind}", ListConfigResourcesRequest(resource_types=[kind]), 1)
