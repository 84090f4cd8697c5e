"""Which APIs are served, in which versions, and by which module; ApiVersions answers from it.

A handler is a function `(RequestContext, request) -> response`, the same as a coroutine, or one
that returns None and answers through the context later. Modules are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from raylog.actors.names import GROUP, TRANSACTION
from raylog.wire.api import VERSIONS, ApiKey, supported_versions

_HANDLERS = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_offsets_to_txn",
    ApiKey.WRITE_TXN_MARKERS: "write_txn_markers",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.DESCRIBE_LOG_DIRS: "describe_log_dirs",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.DESCRIBE_QUORUM: "describe_quorum",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.UNREGISTER_BROKER: "unregister_broker",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
    ApiKey.ADD_RAFT_VOTER: "add_raft_voter",
    ApiKey.REMOVE_RAFT_VOTER: "remove_raft_voter",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "alter_replica_log_dirs",
}
"""API key -> module beside this one; its function carries the module's name."""

_SEVERAL = {
    "security": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "client_quotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
    "scram_credentials": (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "telemetry": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    "share_groups": (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
}
"""Modules with several APIs, most of which are only refused; functions carry the APIs' names."""
_HANDLERS |= {
    api_key: f"{module}.{api_key.name.lower()}"
    for module, api_keys in _SEVERAL.items()
    for api_key in api_keys
}

FORWARDED = dict.fromkeys(
    (
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    ),
    GROUP,
) | dict.fromkeys(
    (
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    TRANSACTION,
)
"""APIs whose handler gets the request's body as it came and passes it on to this role."""
_HANDLERS |= dict.fromkeys(FORWARDED, "forwarded")


def served_versions(*, two_phase_commit: bool = False) -> dict[int, range]:
    """API key -> versions answered; two-phase commit (KIP-939) only where it is enabled."""
    served = {int(api_key): supported_versions(api_key) for api_key in _HANDLERS}
    if two_phase_commit:
        known = VERSIONS[ApiKey.INIT_PRODUCER_ID]
        served[ApiKey.INIT_PRODUCER_ID] = range(known.first, known.last + 1)
    return served


@cache
def handler_of(api_key: ApiKey) -> Callable[..., Any]:
    """The handler of a served API."""
    module, _, function = _HANDLERS[api_key].partition(".")
    handler: Callable[..., Any] = getattr(
        import_module(f"raylog.actors.gateway.handlers.{module}"), function or module
    )
    return handler
