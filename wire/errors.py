"""Failures as exceptions: one class per error code of the protocol.

Every class takes one message and nothing else, so that an exception survives pickling between
actors. `ErrorCode` itself lives in `error_codes.py` and is exported here as well.
"""

from collections.abc import Sequence
from typing import ClassVar

from raylog.wire.error_codes import ErrorCode as ErrorCode

ERROR_TEXT_MAX = 1_000
"""Characters of an error's text, which may quote what a client sent and travels in a STRING."""


def error_text(text: str) -> str:
    """A text that fits where errors are told, on the wire and in logs: cut if it is too long.

    Half a surrogate pair, which JSON may hold, is no text that can be written.
    """
    if len(text) > ERROR_TEXT_MAX:
        text = f"{text[: ERROR_TEXT_MAX - 3]}..."
    return text if text.isascii() else text.encode(errors="replace").decode()


class DecodeError(Exception):
    """Bytes that are no message of the expected kind. Decoders raise this and nothing else."""


class TooManyElements(DecodeError):
    """A message whose arrays have more elements than its reader is ready to make objects of."""


class EncodeError(Exception):
    """A message that cannot be written: a field the version lacks, or a value out of range."""


class KafkaError(Exception):
    """A failure that the protocol has a code for; the message says what was expected and found.

    A message longer than ERROR_TEXT_MAX is cut: what it quotes may be as long as a client likes.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    record_errors: Sequence[tuple[int, str]] = ()  # (position in the batch, why) (KIP-467)

    def __init_subclass__(cls, *, code: ErrorCode | None = None, **kwargs: object) -> None:
        """Register the class of `code`; a class without one (Ray derives such) inherits."""
        super().__init_subclass__(**kwargs)
        if code is not None:
            cls.code = code
            _CLASSES[code] = cls

    def __init__(self, message: str = "") -> None:
        super().__init__(error_text(message))

    @property
    def message(self) -> str:
        """The text alone, as `error_message` fields carry it."""
        return str(self)


_CLASSES: dict[ErrorCode, type[KafkaError]] = {}


def error_of(code: int, message: str = "") -> KafkaError:
    """The exception for an error code; codes outside the table become UnknownServerError."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return UnknownServerError(f"error code {code} {message}".rstrip())
    assert known is not ErrorCode.NONE, "no error has no exception"
    return _CLASSES[known](message)


class UnknownServerError(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """An unexpected failure on the broker; its log has the cause."""


class OffsetOutOfRange(KafkaError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset lies outside what the log holds."""


class CorruptMessage(KafkaError, code=ErrorCode.CORRUPT_MESSAGE):
    """A batch's CRC, length or framing is wrong."""


class UnknownTopicOrPartition(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """This broker does not know, or does not host, the topic or partition."""


class InvalidFetchSize(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE):
    """The fetch asks for a size that makes no sense."""


class LeaderNotAvailable(KafkaError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(KafkaError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """This broker does not lead (or, for a follower fetch, follow) the partition."""


class RequestTimedOut(KafkaError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The deadline of the request passed before its work was done."""


class BrokerNotAvailable(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker cannot be reached."""


class ReplicaNotAvailable(KafkaError, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    """The replica is not here, or not ready to be read."""


class MessageTooLarge(KafkaError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A batch exceeds `max.message.bytes`."""


class StaleControllerEpoch(KafkaError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """The controller's epoch is older than one already seen."""


class OffsetMetadataTooLarge(KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata string of a commit exceeds `offset.metadata.max.bytes`."""


class NetworkException(KafkaError, code=ErrorCode.NETWORK_EXCEPTION):
    """The connection broke before the answer came."""


class CoordinatorLoadInProgress(KafkaError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The coordinator is still reading its partition of the log."""


class CoordinatorNotAvailable(KafkaError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """No coordinator can be named yet."""


class NotCoordinator(KafkaError, code=ErrorCode.NOT_COORDINATOR):
    """Another broker coordinates this group or transactional id."""


class InvalidTopicException(KafkaError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic's name is illegal, or it is internal and may not be written."""


class RecordListTooLarge(KafkaError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """A batch exceeds the segment size of the log."""


class NotEnoughReplicas(KafkaError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas are in sync than `min.insync.replicas` asks; nothing was written."""


class NotEnoughReplicasAfterAppend(KafkaError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """The batch was written, then the ISR fell below `min.insync.replicas`."""


class InvalidRequiredAcks(KafkaError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """acks is none of 0, 1 and -1."""


class IllegalGeneration(KafkaError, code=ErrorCode.ILLEGAL_GENERATION):
    """The generation is not the group's current one."""


class InconsistentGroupProtocol(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member shares no protocol or protocol type with the group."""


class InvalidGroupId(KafkaError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is empty or otherwise illegal."""


class UnknownMemberId(KafkaError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The coordinator does not know the member id."""


class InvalidSessionTimeout(KafkaError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """The session timeout lies outside the bounds set on the broker."""


class RebalanceInProgress(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing: join again."""


class InvalidCommitOffsetSize(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The commit's record would exceed the size limit."""


class TopicAuthorizationFailed(KafkaError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The principal may not use the topic."""


class GroupAuthorizationFailed(KafkaError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The principal may not use the group."""


class ClusterAuthorizationFailed(KafkaError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The principal may not act on the cluster."""


class InvalidTimestamp(KafkaError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is too far from the broker's clock."""


class UnsupportedSaslMechanism(KafkaError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslState(KafkaError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """The request does not fit the state of the SASL handshake."""


class UnsupportedVersion(KafkaError, code=ErrorCode.UNSUPPORTED_VERSION):
    """The broker does not speak this version of the API."""


class TopicAlreadyExists(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of this name exists."""


class InvalidPartitions(KafkaError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is not acceptable."""


class InvalidReplicationFactor(KafkaError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignment(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """The given placement of replicas is inconsistent."""


class InvalidConfig(KafkaError, code=ErrorCode.INVALID_CONFIG):
    """A configuration value is not acceptable."""


class NotController(KafkaError, code=ErrorCode.NOT_CONTROLLER):
    """Another node is the controller."""


class InvalidRequest(KafkaError, code=ErrorCode.INVALID_REQUEST):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """The log's record format cannot express what was asked."""


class PolicyViolation(KafkaError, code=ErrorCode.POLICY_VIOLATION):
    """A policy on the broker forbids it."""


class OutOfOrderSequenceNumber(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A producer's sequence number skipped ahead."""


class DuplicateSequenceNumber(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """A producer's sequence number was seen before, and the batch is no longer known."""


class InvalidProducerEpoch(KafkaError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """The producer's epoch is older than the newest one seen."""


class InvalidTxnState(KafkaError, code=ErrorCode.INVALID_TXN_STATE):
    """The transaction's state does not allow this operation."""


class InvalidProducerIdMapping(KafkaError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """The producer id is not the one of this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """The transaction timeout exceeds `transaction.max.timeout.ms`."""


class ConcurrentTransactions(KafkaError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    """Another operation on the same transaction is still under way."""


class TransactionCoordinatorFenced(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """The transaction coordinator that sent this has been superseded."""


class TransactionalIdAuthorizationFailed(
    KafkaError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    """The principal may not use the transactional id."""


class SecurityDisabled(KafkaError, code=ErrorCode.SECURITY_DISABLED):
    """No authorizer or authentication is configured."""


class OperationNotAttempted(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """Left undone because something else in the request failed."""


class KafkaStorageError(KafkaError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The disk under the log failed or is full."""


class LogDirNotFound(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """The broker has no log directory of that name."""


class SaslAuthenticationFailed(KafkaError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """The credentials were refused."""


class UnknownProducerId(KafkaError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker holds no state of this producer id; its records are gone."""


class ReassignmentInProgress(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition is being reassigned."""


class DelegationTokenAuthDisabled(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """Delegation tokens are not enabled."""


class DelegationTokenNotFound(KafkaError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """No such delegation token."""


class DelegationTokenOwnerMismatch(KafkaError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """The delegation token belongs to someone else."""


class DelegationTokenRequestNotAllowed(
    KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
):
    """This connection's authentication does not allow token requests."""


class DelegationTokenAuthorizationFailed(
    KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
):
    """The principal may not use delegation tokens."""


class DelegationTokenExpired(KafkaError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """The delegation token has expired."""


class InvalidPrincipalType(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """The kind of principal is not supported."""


class NonEmptyGroup(KafkaError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """No such group."""


class FetchSessionIdNotFound(KafkaError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    """The broker does not know the fetch session."""


class InvalidFetchSessionEpoch(KafkaError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    """The fetch session is at another epoch."""


class ListenerNotFound(KafkaError, code=ErrorCode.LISTENER_NOT_FOUND):
    """The leader has no listener of the name the client connected by."""


class TopicDeletionDisabled(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """`delete.topic.enable` is off."""


class FencedLeaderEpoch(KafkaError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The leader epoch given is older than the broker's."""


class UnknownLeaderEpoch(KafkaError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The leader epoch given is newer than the broker's."""


class UnsupportedCompressionType(KafkaError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """The codec is not allowed at this version."""


class StaleBrokerEpoch(KafkaError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The broker's registration has been replaced by a newer one."""


class OffsetNotAvailable(KafkaError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """The new leader's high watermark is not yet known (KIP-207)."""


class MemberIdRequired(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """Join again with the member id just handed out (KIP-394)."""


class PreferredLeaderNotAvailable(KafkaError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The preferred leader cannot lead now."""


class GroupMaxSizeReached(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group is at `group.max.size`."""


class FencedInstanceId(KafkaError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member took over this `group.instance.id`."""


class EligibleLeadersNotAvailable(KafkaError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """No replica is eligible to lead."""


class ElectionNotNeeded(KafkaError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The partition's leader is already the one asked for."""


class NoReassignmentInProgress(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """No reassignment to cancel or list."""


class GroupSubscribedToTopic(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """A member of the group is subscribed to the topic."""


class InvalidRecord(KafkaError, code=ErrorCode.INVALID_RECORD):
    """A record or batch breaks a rule of its topic or of the format."""


class UnstableOffsetCommit(KafkaError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    """Transactional offsets of the partition are still undecided."""


class ThrottlingQuotaExceeded(KafkaError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """A quota is exhausted; try again after the throttle time."""


class ProducerFenced(KafkaError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer of the same transactional id has taken over."""


class ResourceNotFound(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """No such resource."""


class DuplicateResource(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The resource exists, or is named twice."""


class UnacceptableCredential(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """The credential does not meet the broker's requirements."""


class InconsistentVoterSet(KafkaError, code=ErrorCode.INCONSISTENT_VOTER_SET):
    """The sets of voters differ."""


class InvalidUpdateVersion(KafkaError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """A feature level, or a version in an update, is not acceptable."""


class FeatureUpdateFailed(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """The features could not be changed."""


class PrincipalDeserializationFailure(KafkaError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
    """The forwarded principal cannot be read."""


class SnapshotNotFound(KafkaError, code=ErrorCode.SNAPSHOT_NOT_FOUND):
    """No such snapshot."""


class PositionOutOfRange(KafkaError, code=ErrorCode.POSITION_OUT_OF_RANGE):
    """The position lies outside the snapshot."""


class UnknownTopicId(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """This broker does not know the topic id."""


class DuplicateBrokerRegistration(KafkaError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION):
    """The broker id is registered by another live process."""


class BrokerIdNotRegistered(KafkaError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """No broker of that id is registered."""


class InconsistentTopicId(KafkaError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """The topic id and the name or log do not belong together."""


class InconsistentClusterId(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """The cluster id is another one."""


class TransactionalIdNotFound(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """No such transactional id."""


class FetchSessionTopicIdError(KafkaError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    """The fetch session mixes topic names and topic ids."""


class IneligibleReplica(KafkaError, code=ErrorCode.INELIGIBLE_REPLICA):
    """The replica may not join the ISR."""


class NewLeaderElected(KafkaError, code=ErrorCode.NEW_LEADER_ELECTED):
    """The change took effect and made another replica the leader."""


class OffsetMovedToTieredStorage(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
    """The offset is in tiered storage only."""


class FencedMemberEpoch(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The member epoch is older than the coordinator's."""


class UnreleasedInstanceId(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """The previous holder of the `group.instance.id` has not left."""


class UnsupportedAssignor(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The coordinator has no assignor of that name."""


class StaleMemberEpoch(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member epoch in a commit or fetch is out of date."""


class MismatchedEndpointType(KafkaError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """The endpoint is not of the kind the client expected."""


class UnsupportedEndpointType(KafkaError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """The endpoint cannot serve this kind of client."""


class UnknownControllerId(KafkaError, code=ErrorCode.UNKNOWN_CONTROLLER_ID):
    """No controller of that id."""


class UnknownSubscriptionId(KafkaError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
    """The telemetry subscription id is out of date."""


class TelemetryTooLarge(KafkaError, code=ErrorCode.TELEMETRY_TOO_LARGE):
    """The telemetry exceeds the size limit."""


class InvalidRegistration(KafkaError, code=ErrorCode.INVALID_REGISTRATION):
    """The controller refuses the broker's registration."""


class TransactionAbortable(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction can no longer commit: abort it and go on (KIP-890)."""


class InvalidRecordState(KafkaError, code=ErrorCode.INVALID_RECORD_STATE):
    """The record is not in the state the acknowledgement needs."""


class ShareSessionNotFound(KafkaError, code=ErrorCode.SHARE_SESSION_NOT_FOUND):
    """The broker does not know the share session."""


class InvalidShareSessionEpoch(KafkaError, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH):
    """The share session is at another epoch."""


class FencedStateEpoch(KafkaError, code=ErrorCode.FENCED_STATE_EPOCH):
    """The state epoch of the share partition is older than one already seen."""


class InvalidVoterKey(KafkaError, code=ErrorCode.INVALID_VOTER_KEY):
    """The voter's id and directory id do not belong together."""


class DuplicateVoter(KafkaError, code=ErrorCode.DUPLICATE_VOTER):
    """The voter is in the set already."""


class VoterNotFound(KafkaError, code=ErrorCode.VOTER_NOT_FOUND):
    """The voter is not in the set."""


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The subscription's pattern is no RE2 expression."""


class RebootstrapRequired(KafkaError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The client should go back to its bootstrap servers (KIP-1102)."""


class StreamsInvalidTopology(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY):
    """The Streams topology is not valid."""


class StreamsInvalidTopologyEpoch(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH):
    """The Streams topology's epoch is not valid."""


class StreamsTopologyFenced(KafkaError, code=ErrorCode.STREAMS_TOPOLOGY_FENCED):
    """The Streams topology's epoch is out of date."""


class ShareSessionLimitReached(KafkaError, code=ErrorCode.SHARE_SESSION_LIMIT_REACHED):
    """The broker holds as many share sessions as it may."""
