"""DescribeUserScramCredentials 0 and AlterUserScramCredentials 0: passwords (KIP-554).

Left out: SASL. No user has credentials, and none can be set.
"""

from __future__ import annotations

from collections import Counter

from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from raylog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from raylog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_MECHANISMS = (1, 2)
"""SCRAM-SHA-256 and SCRAM-SHA-512."""


def describe_user_scram_credentials(
    _context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answer that no user has credentials."""
    mentions = Counter(one.name for one in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=[_described(user, count) for user, count in sorted(mentions.items())],
    )


def _described(user: str, mentions: int) -> DescribeUserScramCredentialsResult:
    refusal: KafkaError = ResourceNotFound(
        f"Attempt to describe a user credential that does not exist: {user}"
    )
    if mentions > 1:
        refusal = DuplicateResource(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    return DescribeUserScramCredentialsResult(
        user=user, error_code=int(refusal.code), error_message=refusal.message
    )


def alter_user_scram_credentials(
    _context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Refuse each user."""
    refusals: dict[str, KafkaError] = {}
    for upsertion in request.upsertions:
        refusals[upsertion.name] = _refusal(
            upsertion.name,
            upsertion.mechanism,
            UnsupportedVersion("Raylog has no SCRAM credentials."),
        )
    for deletion in request.deletions:
        refusals[deletion.name] = _refusal(
            deletion.name,
            deletion.mechanism,
            ResourceNotFound("Attempt to delete a user credential that does not exist"),
        )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user, error_code=int(refusal.code), error_message=refusal.message
            )
            for user, refusal in sorted(refusals.items())
        ]
    )


def _refusal(user: str, mechanism: int, otherwise: KafkaError) -> KafkaError:
    if not user:
        return UnacceptableCredential("Username must not be empty")
    if mechanism not in _MECHANISMS:
        return UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    return otherwise
