"""The blocking admin client of one cluster, for scripts, the command line and executors.

Threads can share it; their calls run one after another. Producers that it creates send in a
background thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TypeVar

from raylog.client.admin.acls import AclBinding, AclFilter
from raylog.client.admin.features import Features, UpgradeType
from raylog.client.admin.group_descriptions import GroupDescription
from raylog.client.admin.groups import CommittedOffset, GroupListing
from raylog.client.admin.operations import AllOperations
from raylog.client.admin.quotas import QuotaEntity, QuotaFilter
from raylog.client.admin.replicas import (
    Outcomes,
    PartitionReplicas,
    QuorumView,
    Reassignment,
)
from raylog.client.admin.tokens import DelegationToken
from raylog.client.admin.topics import (
    ClusterDescription,
    ConfigEntry,
    LogDir,
    NewTopic,
    Resource,
    ResourceType,
)
from raylog.client.admin.transactions import (
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from raylog.client.admin.users import ScramCredential, ScramDeletion, ScramUpsertion
from raylog.client.background import OF_THE_PARENT, BackgroundLoop
from raylog.client.closing import Closing, OfOneProcess
from raylog.client.cluster import ClusterView, Node, TopicPartition, TopicView
from raylog.client.consumer.blocking import Consumer
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.offsets import FoundOffset
from raylog.client.producer.blocking import Producer
from raylog.client.producer.core import OnDelivery, ProducerCore
from raylog.client.setting_parsing import Config, settings_of
from raylog.client.settings import ClientSettings, ProducerSettings
from raylog.client.sockets import BlockingIo
from raylog.client.streams import AsyncIo

T = TypeVar("T")


class Admin(OfOneProcess, Closing):
    """Manages a cluster's topics, settings, groups, transactions, ACLs, quotas, users and brokers.

    `with Admin("localhost:9092") as admin: ...`; settings have Kafka's names, in a mapping or as
    keyword arguments: `Admin("localhost:9092", request_timeout_ms=5_000)`.

    Threads can share an Admin; their calls run one after another. Create one in each process: a
    child of `fork` cannot use its parent's.
    """

    def __init__(
        self, config: Config = None, client: ClientSettings | None = None, /, **settings: object
    ) -> None:
        """`client` replaces all other settings."""
        self._settings = settings_of(config, client, settings)
        self._background = BackgroundLoop()
        self._background_io = AsyncIo()
        self._background.at_end.add(self._background_io.finish)
        self._opened: list[tuple[Core, BlockingIo]] = []
        self._consumers: weakref.WeakSet[Consumer[bytes, bytes]] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._is_closed = False
        self._admin = AllOperations(self._new_core())

    def producer(
        self, settings: ProducerSettings | None = None, on_delivery: OnDelivery | None = None
    ) -> Producer[bytes, bytes]:
        """Create a producer. Its thread calls `on_delivery` when a batch succeeds or fails."""
        core = Core(self._background_io, self._settings)
        producer = ProducerCore(core, settings or ProducerSettings(), on_delivery)
        return Producer.over(producer, self._background, self._background_io)

    def consumer(self, settings: ConsumerSettings | None = None) -> Consumer[bytes, bytes]:
        """Create a consumer with the same connection settings; close it before the admin."""
        consumer = Consumer.of_settings(self._settings, settings or ConsumerSettings())
        self._consumers.add(consumer)
        return consumer

    def metadata(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Return current metadata: brokers and topics (None: all topics)."""
        return self._run(self._admin.metadata(topics))

    def describe_topic(self, topic: str) -> TopicView:
        """Return a topic's metadata; raises UnknownTopicOrPartition."""
        return self._run(self._admin.describe_topic(topic))

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics and wait until they have leaders; raises the first error."""
        self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete topics by name; raises the first error."""
        self._run(self._admin.delete_topics(topics))

    def create_partitions(self, topic: str, count: int) -> None:
        """Increase a topic's number of partitions to `count`. This cannot be undone."""
        self._run(self._admin.create_partitions(topic, count))

    def describe_configs(
        self, resource: Resource, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Return all settings of a resource."""
        return self._run(self._admin.describe_configs(resource, documentation=documentation))

    def alter_configs(
        self,
        resource: Resource,
        changes: Mapping[str, str | None] | None = None,
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set values, or reset them to the default with None; other settings stay (KIP-339).

        `append` adds comma-separated values to settings that are lists; `subtract` removes values.
        """
        self._run(
            self._admin.alter_configs(
                resource,
                changes,
                append=append,
                subtract=subtract,
                validate_only=validate_only,
            )
        )

    def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[Resource]:
        """Return the resources that can be configured, of some types (none: of all types)."""
        return self._run(self._admin.list_config_resources(types))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return offsets by timestamp in ms, EARLIEST, LATEST or MAX_TIMESTAMP."""
        return self._run(self._admin.list_offsets(wanted, read_committed=read_committed))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below an offset (HIGH_WATERMARK: all); return the new first offsets."""
        return self._run(self._admin.delete_records(before))

    def describe_cluster(self) -> ClusterDescription:
        """Return cluster id, controller and brokers; from Kafka 4.0 on also fenced brokers."""
        return self._run(self._admin.describe_cluster())

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> list[LogDir]:
        """Return the data directories of brokers (None: of all) and the sizes of their replicas.

        With `partitions`, list only replicas of these; if it is empty, only the directories.
        """
        return self._run(self._admin.describe_log_dirs(brokers, partitions=partitions))

    def describe_partitions(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, PartitionReplicas]:
        """Return leaders and replicas of topics (None: of all); raises UnknownTopicOrPartition."""
        return self._run(self._admin.describe_partitions(topics))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> Outcomes:
        """Elect preferred replicas as leaders, or any live ones if `unclean` (None: everywhere)."""
        return self._run(self._admin.elect_leaders(partitions, unclean=unclean))

    def alter_reassignments(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Move partitions to other brokers, preferred leader first; None cancels a move."""
        return self._run(self._admin.alter_reassignments(moves))

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return those of these partitions (None: of all) that are being moved."""
        return self._run(self._admin.list_reassignments(partitions))

    def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> Outcomes:
        """Move a broker's replicas to other data directories, given as absolute paths."""
        return self._run(self._admin.alter_replica_log_dirs(broker_id, moves))

    def describe_quorum(self) -> QuorumView:
        """Return the metadata quorum: voters and observers, and how far each has got."""
        return self._run(self._admin.describe_quorum())

    def add_voter(
        self,
        broker_id: int,
        directory_id: str,
        listeners: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        """Make a controller a voter of the metadata quorum; raises DuplicateVoter, RequestTimedOut.

        `listeners` maps names to host and port; only Apache Kafka needs them.
        """
        self._run(self._admin.add_voter(broker_id, directory_id, listeners or {}))

    def remove_voter(self, broker_id: int, directory_id: str) -> None:
        """Remove a voter from the metadata quorum; raises VoterNotFound."""
        self._run(self._admin.remove_voter(broker_id, directory_id))

    def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that is gone; raises BrokerIdNotRegistered."""
        self._run(self._admin.unregister_broker(broker_id))

    def find_coordinators(self, group_ids: Iterable[str]) -> dict[str, Node]:
        """Return the coordinator of each group, whether or not the group exists."""
        return self._run(self._admin.find_coordinators(group_ids))

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name. An empty filter matches all."""
        return self._run(self._admin.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return state and members of groups of both protocols; raises GroupIdNotFound."""
        return self._run(self._admin.describe_groups(group_ids))

    def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return committed offsets (None: of all partitions); omit partitions without one."""
        return self._run(
            self._admin.group_offsets(group_id, partitions, require_stable=require_stable)
        )

    def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int]
    ) -> None:
        """Set the offsets of a group without members; raises UnknownMemberId if it has members."""
        self._run(self._admin.commit_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets; raises GroupSubscribedToTopic, GroupIdNotFound."""
        self._run(self._admin.delete_group_offsets(group_id, partitions))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets; raises the first error."""
        self._run(self._admin.delete_groups(group_ids))

    def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Remove static members by their `group.instance.id` (None: all members) from a group."""
        self._run(self._admin.remove_group_members(group_id, instance_ids, reason=reason))

    def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """Return transactional ids of all brokers, sorted. An empty filter matches all."""
        return self._run(self._admin.list_transactions(states=states, producer_ids=producer_ids))

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return a transactional id and its open transaction; raises TransactionalIdNotFound."""
        return self._run(self._admin.describe_transaction(transactional_id))

    def describe_producers(
        self, keys: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Return the producers of partitions, as known to their leaders or to one broker."""
        return self._run(self._admin.describe_producers(keys, broker_id=broker_id))

    def find_hanging_transactions(
        self, keys: Iterable[TopicPartition], *, max_timeout_ms: int, broker_id: int | None = None
    ) -> list[HangingTransaction]:
        """Return transactions open for more than `max_timeout_ms` that no coordinator will end."""
        return self._run(
            self._admin.find_hanging_transactions(
                keys, max_timeout_ms=max_timeout_ms, broker_id=broker_id
            )
        )

    def abort_in_partition(
        self, key: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Abort a producer's transaction in a single partition."""
        self._run(
            self._admin.abort_in_partition(key, producer_id, producer_epoch, coordinator_epoch)
        )

    def fence_transactional_id(self, transactional_id: str) -> None:
        """Fence the producers of a transactional id and abort its transaction, even if prepared."""
        self._run(self._admin.fence_transactional_id(transactional_id))

    def describe_acls(self, which: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that match a filter (None: all); raises SecurityDisabled."""
        return self._run(self._admin.describe_acls(which))

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs; raises the first error. Creating an ACL that exists changes nothing."""
        self._run(self._admin.create_acls(acls))

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that match any of the filters; return those that were deleted."""
        return self._run(self._admin.delete_acls(filters))

    def describe_client_quotas(
        self,
        *,
        user: QuotaFilter | None = None,
        client_id: QuotaFilter | None = None,
        ip: QuotaFilter | None = None,
        strict: bool = False,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas by entity, for entities that have all the given parts (none: for all).

        `strict` omits entities that have other parts as well.
        """
        return self._run(
            self._admin.describe_client_quotas(user=user, client_id=client_id, ip=ip, strict=strict)
        )

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas such as `producer_byte_rate`; None removes one. Other quotas do not change."""
        self._run(self._admin.alter_client_quotas(changes, validate_only=validate_only))

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredential]]:
        """Return credentials by user (None: all users); raises ResourceNotFound if one has none."""
        return self._run(self._admin.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, alterations: Iterable[ScramUpsertion | ScramDeletion]
    ) -> None:
        """Set and delete credentials, at most one per user in one call.

        Raises the first error, but the changes for other users are made.
        """
        self._run(self._admin.alter_user_scram_credentials(alterations))

    def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token for this client's user, or for another owner (KIP-48, KIP-373)."""
        return self._run(
            self._admin.create_delegation_token(
                owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
            )
        )

    def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that this client's user may see, of owners or renewers (None: all)."""
        return self._run(self._admin.describe_delegation_tokens(owners))

    def renew_delegation_token(self, hmac: bytes, period_ms: int | None = None) -> int:
        """Extend a token's life to `period_ms` from now; return when it expires, in Unix ms."""
        return self._run(self._admin.renew_delegation_token(hmac, period_ms))

    def expire_delegation_token(self, hmac: bytes, after_ms: int | None = None) -> int:
        """Make a token expire in `after_ms` (None: at once); return when, in Unix ms."""
        return self._run(self._admin.expire_delegation_token(hmac, after_ms))

    def describe_features(self) -> Features:
        """Return the features that brokers support, and the finalized ones (KIP-584)."""
        return self._run(self._admin.describe_features())

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize feature levels, where 0 disables a feature; raises the first error."""
        self._run(
            self._admin.update_features(
                levels, upgrade_type=upgrade_type, validate_only=validate_only
            )
        )

    def close(self) -> None:
        """Close consumers and all connections. Flush producers first.

        Has no effect if the admin is closed, or belongs to the parent process.
        """
        if self._pid != os.getpid():
            return
        for consumer in tuple(self._consumers):
            consumer.close()
        with self._lock:
            self._is_closed = True
            self._background.stop()
            for core, io in self._opened:
                core.close()
                io.close()
            self._opened.clear()

    def _run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run one operation; other threads wait until it ends."""
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise ClientError("the client is closed")
            if self._pid != os.getpid():
                coroutine.close()
                raise ClientError(OF_THE_PARENT)
            return run_blocking(coroutine)

    def _new_core(self) -> Core:
        """Create separate connections, so that a waiting fetch does not delay other requests."""
        io = BlockingIo()
        core = Core(io, self._settings)
        self._opened.append((core, io))
        return core


BlockingClient = Admin
"""Name of `Admin` in version 0.1."""
