"""Exceptions of the protocol: one class per error code.

Every class takes a single message, so that exceptions can be pickled between actors. `ErrorCode` is
defined in `error_codes.py` and exported here.
"""

from collections.abc import Sequence
from typing import ClassVar

from raylog.wire.error_codes import ErrorCode as ErrorCode

ERROR_TEXT_MAX = 1_000
"""The most characters of an error text. It may quote a client and has to fit into a STRING."""


def error_text(text: str) -> str:
    """Make a text fit for responses and logs: cut it if it is too long.

    Lone surrogates, which JSON may contain, are replaced because they cannot be encoded.
    """
    if len(text) > ERROR_TEXT_MAX:
        text = f"{text[: ERROR_TEXT_MAX - 3]}..."
    return text if text.isascii() else text.encode(errors="replace").decode()


class DecodeError(Exception):
    """Bytes are not a valid message of the expected type. Decoders raise nothing else."""


class TooManyElements(DecodeError):
    """The arrays of a message have more elements than its reader accepts."""


class EncodeError(Exception):
    """A message cannot be encoded: the version lacks a field, or a value is out of range."""


class KafkaError(Exception):
    """An error with a code in the protocol. The message names what was expected and found.

    A message longer than ERROR_TEXT_MAX is cut, because it may quote arbitrary input of a client.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    record_errors: Sequence[tuple[int, str]] = ()  # (position in the batch, why) (KIP-467)

    def __init_subclass__(cls, *, code: ErrorCode | None = None, **kwargs: object) -> None:
        """Register the class for `code`. A class without one, as Ray derives, inherits it."""
        super().__init_subclass__(**kwargs)
        if code is not None:
            cls.code = code
            _CLASSES[code] = cls

    def __init__(self, message: str = "") -> None:
        super().__init__(error_text(message))

    @property
    def message(self) -> str:
        """The text, as in `error_message` fields."""
        return str(self)


_CLASSES: dict[ErrorCode, type[KafkaError]] = {}


def error_of(code: int, message: str = "") -> KafkaError:
    """The exception for an error code. Unknown codes become UnknownServerError."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return UnknownServerError(f"error code {code} {message}".rstrip())
    assert known is not ErrorCode.NONE, "no error has no exception"
    return _CLASSES[known](message)


class UnknownServerError(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """An unexpected failure on the broker, whose log has the cause."""


class OffsetOutOfRange(KafkaError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset is outside of the log."""


class CorruptMessage(KafkaError, code=ErrorCode.CORRUPT_MESSAGE):
    """The CRC, length or framing of a batch is wrong."""


class UnknownTopicOrPartition(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """This broker does not know or host the topic or partition."""


class InvalidFetchSize(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE):
    """The requested fetch size is invalid."""


class LeaderNotAvailable(KafkaError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(KafkaError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """This broker is not the partition's leader, or not its follower in a follower fetch."""


class RequestTimedOut(KafkaError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The request did not finish before its deadline."""


class BrokerNotAvailable(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker cannot be reached."""


class ReplicaNotAvailable(KafkaError, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    """The replica is not on this broker, or not ready to be read."""


class MessageTooLarge(KafkaError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A batch exceeds `max.message.bytes`."""


class StaleControllerEpoch(KafkaError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """The controller's epoch is older than one already seen."""


class OffsetMetadataTooLarge(KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata string of a commit exceeds `offset.metadata.max.bytes`."""


class NetworkException(KafkaError, code=ErrorCode.NETWORK_EXCEPTION):
    """The connection broke before the response arrived."""


class CoordinatorLoadInProgress(KafkaError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The coordinator is still loading its partition."""


class CoordinatorNotAvailable(KafkaError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """No coordinator is available yet."""


class NotCoordinator(KafkaError, code=ErrorCode.NOT_COORDINATOR):
    """Another broker coordinates this group or transactional id."""


class InvalidTopicException(KafkaError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic name is invalid, or the topic is internal and must not be written."""


class RecordListTooLarge(KafkaError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """A batch exceeds the segment size of the log."""


class NotEnoughReplicas(KafkaError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer than `min.insync.replicas` replicas are in sync. Nothing was written."""


class NotEnoughReplicasAfterAppend(KafkaError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """The batch was written, but the ISR then shrank below `min.insync.replicas`."""


class InvalidRequiredAcks(KafkaError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """acks is not 0, 1 or -1."""


class IllegalGeneration(KafkaError, code=ErrorCode.ILLEGAL_GENERATION):
    """The generation is not the current one of the group."""


class InconsistentGroupProtocol(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member and the group have no common protocol or protocol type."""


class InvalidGroupId(KafkaError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is empty or otherwise invalid."""


class UnknownMemberId(KafkaError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The coordinator does not know the member id."""


class InvalidSessionTimeout(KafkaError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """The session timeout is outside of the broker's limits."""


class RebalanceInProgress(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing, so the member must rejoin."""


class InvalidCommitOffsetSize(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The commit's record would exceed the size limit."""


class TopicAuthorizationFailed(KafkaError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The principal may not access the topic."""


class GroupAuthorizationFailed(KafkaError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The principal may not access the group."""


class ClusterAuthorizationFailed(KafkaError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The principal may not act on the cluster."""


class InvalidTimestamp(KafkaError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is too far from the broker's clock."""


class UnsupportedSaslMechanism(KafkaError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The broker does not support this SASL mechanism."""


class IllegalSaslState(KafkaError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """The request is not allowed in this state of the SASL handshake."""


class UnsupportedVersion(KafkaError, code=ErrorCode.UNSUPPORTED_VERSION):
    """The broker does not support this version of the API."""


class TopicAlreadyExists(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic with this name exists already."""


class InvalidPartitions(KafkaError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is invalid."""


class InvalidReplicationFactor(KafkaError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignment(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """The given replica assignment is invalid."""


class InvalidConfig(KafkaError, code=ErrorCode.INVALID_CONFIG):
    """A configuration value is invalid."""


class NotController(KafkaError, code=ErrorCode.NOT_CONTROLLER):
    """Another node is the controller."""


class InvalidRequest(KafkaError, code=ErrorCode.INVALID_REQUEST):
    """The request is inconsistent or violates the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """The record format of the log does not support the request."""


class PolicyViolation(KafkaError, code=ErrorCode.POLICY_VIOLATION):
    """A policy on the broker forbids it."""


class OutOfOrderSequenceNumber(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A producer's sequence number is not the next one."""


class DuplicateSequenceNumber(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """A producer's sequence number was used before, and its batch is not remembered any more."""


class InvalidProducerEpoch(KafkaError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """The producer's epoch is older than the latest one."""


class InvalidTxnState(KafkaError, code=ErrorCode.INVALID_TXN_STATE):
    """The transaction's state does not allow this operation."""


class InvalidProducerIdMapping(KafkaError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """The producer id does not belong to this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """The transaction timeout exceeds `transaction.max.timeout.ms`."""


class ConcurrentTransactions(KafkaError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    """Another operation on the same transaction is in progress."""


class TransactionCoordinatorFenced(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """The transaction coordinator that sent this was replaced."""


class TransactionalIdAuthorizationFailed(
    KafkaError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    """The principal may not access the transactional id."""


class SecurityDisabled(KafkaError, code=ErrorCode.SECURITY_DISABLED):
    """No authorizer or authentication is configured."""


class OperationNotAttempted(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """The operation was not attempted because something else in the request failed."""


class KafkaStorageError(KafkaError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The disk under the log failed or is full."""


class LogDirNotFound(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """The broker has no log directory with this name."""


class SaslAuthenticationFailed(KafkaError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """The credentials were refused."""


class UnknownProducerId(KafkaError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker has no state of this producer id, because its records are gone."""


class ReassignmentInProgress(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition is being reassigned."""


class DelegationTokenAuthDisabled(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """Delegation tokens are not enabled."""


class DelegationTokenNotFound(KafkaError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatch(KafkaError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """The delegation token belongs to another owner."""


class DelegationTokenRequestNotAllowed(
    KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
):
    """Token requests are not allowed with this connection's authentication."""


class DelegationTokenAuthorizationFailed(
    KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
):
    """The principal may not use delegation tokens."""


class DelegationTokenExpired(KafkaError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """The delegation token has expired."""


class InvalidPrincipalType(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """The type of the principal is not supported."""


class NonEmptyGroup(KafkaError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """The group does not exist."""


class FetchSessionIdNotFound(KafkaError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    """The broker does not know the fetch session."""


class InvalidFetchSessionEpoch(KafkaError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    """The epoch of the fetch session does not match."""


class ListenerNotFound(KafkaError, code=ErrorCode.LISTENER_NOT_FOUND):
    """The leader does not have the listener through which the client connected."""


class TopicDeletionDisabled(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """`delete.topic.enable` is off."""


class FencedLeaderEpoch(KafkaError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The given leader epoch is older than the broker's."""


class UnknownLeaderEpoch(KafkaError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The given leader epoch is newer than the broker's."""


class UnsupportedCompressionType(KafkaError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """This version does not allow the codec."""


class StaleBrokerEpoch(KafkaError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The broker's registration was replaced by a newer one."""


class OffsetNotAvailable(KafkaError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """The new leader does not know its high watermark yet (KIP-207)."""


class MemberIdRequired(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """The member must rejoin with the member id that it was just given (KIP-394)."""


class PreferredLeaderNotAvailable(KafkaError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The preferred leader is not available."""


class GroupMaxSizeReached(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has `group.max.size` members."""


class FencedInstanceId(KafkaError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member took over this `group.instance.id`."""


class EligibleLeadersNotAvailable(KafkaError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """No replica is eligible to lead."""


class ElectionNotNeeded(KafkaError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The requested leader already leads the partition."""


class NoReassignmentInProgress(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """There is no reassignment to cancel or list."""


class GroupSubscribedToTopic(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """A member of the group is subscribed to the topic."""


class InvalidRecord(KafkaError, code=ErrorCode.INVALID_RECORD):
    """A record or batch violates a rule of its topic or of the format."""


class UnstableOffsetCommit(KafkaError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    """An open transaction has offsets of the partition."""


class ThrottlingQuotaExceeded(KafkaError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """A quota is exceeded. Retry after the throttle time."""


class ProducerFenced(KafkaError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer with the same transactional id has taken over."""


class ResourceNotFound(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """The resource does not exist."""


class DuplicateResource(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The resource exists already or is named twice."""


class UnacceptableCredential(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """The credential does not meet the broker's requirements."""


class InconsistentVoterSet(KafkaError, code=ErrorCode.INCONSISTENT_VOTER_SET):
    """The sets of voters differ."""


class InvalidUpdateVersion(KafkaError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """A feature level, or a version in an update, is not acceptable."""


class FeatureUpdateFailed(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """The features could not be updated."""


class PrincipalDeserializationFailure(KafkaError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
    """The forwarded principal cannot be read."""


class SnapshotNotFound(KafkaError, code=ErrorCode.SNAPSHOT_NOT_FOUND):
    """The snapshot does not exist."""


class PositionOutOfRange(KafkaError, code=ErrorCode.POSITION_OUT_OF_RANGE):
    """The position is outside of the snapshot."""


class UnknownTopicId(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """This broker does not know the topic id."""


class DuplicateBrokerRegistration(KafkaError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION):
    """The broker id is registered by another live process."""


class BrokerIdNotRegistered(KafkaError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """No broker with this id is registered."""


class InconsistentTopicId(KafkaError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """The topic id does not match the name or the log."""


class InconsistentClusterId(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """The cluster id does not match."""


class TransactionalIdNotFound(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """The transactional id does not exist."""


class FetchSessionTopicIdError(KafkaError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    """The fetch session mixes topic names and topic ids."""


class IneligibleReplica(KafkaError, code=ErrorCode.INELIGIBLE_REPLICA):
    """The replica may not join the ISR."""


class NewLeaderElected(KafkaError, code=ErrorCode.NEW_LEADER_ELECTED):
    """The change took effect, and another replica is the leader now."""


class OffsetMovedToTieredStorage(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
    """The offset is in tiered storage only."""


class FencedMemberEpoch(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The member epoch is older than the coordinator's."""


class UnreleasedInstanceId(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """The previous member with this `group.instance.id` has not left."""


class UnsupportedAssignor(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The coordinator has no assignor with this name."""


class StaleMemberEpoch(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member epoch of a commit or fetch is out of date."""


class MismatchedEndpointType(KafkaError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """The endpoint has another type than the client expected."""


class UnsupportedEndpointType(KafkaError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """The endpoint does not support this type of client."""


class UnknownControllerId(KafkaError, code=ErrorCode.UNKNOWN_CONTROLLER_ID):
    """No controller has this id."""


class UnknownSubscriptionId(KafkaError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
    """The telemetry subscription id is out of date."""


class TelemetryTooLarge(KafkaError, code=ErrorCode.TELEMETRY_TOO_LARGE):
    """The telemetry exceeds the size limit."""


class InvalidRegistration(KafkaError, code=ErrorCode.INVALID_REGISTRATION):
    """The controller refuses the broker's registration."""


class TransactionAbortable(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction cannot be committed any more, only aborted (KIP-890)."""


class InvalidRecordState(KafkaError, code=ErrorCode.INVALID_RECORD_STATE):
    """The record is not in the state that the acknowledgement requires."""


class ShareSessionNotFound(KafkaError, code=ErrorCode.SHARE_SESSION_NOT_FOUND):
    """The broker does not know the share session."""


class InvalidShareSessionEpoch(KafkaError, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH):
    """The epoch of the share session does not match."""


class FencedStateEpoch(KafkaError, code=ErrorCode.FENCED_STATE_EPOCH):
    """The state epoch of the share partition is older than the latest one."""


class InvalidVoterKey(KafkaError, code=ErrorCode.INVALID_VOTER_KEY):
    """The voter's id and directory id do not match."""


class DuplicateVoter(KafkaError, code=ErrorCode.DUPLICATE_VOTER):
    """The voter is already in the set."""


class VoterNotFound(KafkaError, code=ErrorCode.VOTER_NOT_FOUND):
    """The voter is not in the set."""


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The subscription's pattern is not a valid RE2 expression."""


class RebootstrapRequired(KafkaError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The client should rebootstrap from its bootstrap servers (KIP-1102)."""


class StreamsInvalidTopology(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY):
    """The Streams topology is invalid."""


class StreamsInvalidTopologyEpoch(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH):
    """The epoch of the Streams topology is invalid."""


class StreamsTopologyFenced(KafkaError, code=ErrorCode.STREAMS_TOPOLOGY_FENCED):
    """The epoch of the Streams topology is out of date."""


class ShareSessionLimitReached(KafkaError, code=ErrorCode.SHARE_SESSION_LIMIT_REACHED):
    """The broker has reached its limit of share sessions."""
