"""SCRAM users: their credentials, but never their passwords (KIP-554).

The client salts and hashes passwords itself, so brokers never receive anything from which a
password could be recovered. Changes are not retried once they were sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from raylog.client.admin.base import Operations, items_in, member_of, names_in
from raylog.client.errors import InvalidSetting
from raylog.client.matching import answers_to, distinct_answers, named
from raylog.client.refusals import check
from raylog.client.security.scram import ITERATIONS_MIN, salted_password
from raylog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from raylog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

ITERATIONS_STORED_MAX = 16_384
"""Brokers refuse credentials with more iterations."""
_SALT_BYTES = 32
_name = named("user")


class ScramMechanism(IntEnum):
    """A hash function for SCRAM. A user has at most one credential per mechanism."""

    UNKNOWN = 0
    """In answers: a mechanism unknown to this client."""
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The value for `sasl.mechanism`, as in SCRAM-SHA-256."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A credential, as described by a broker."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential to set; replaces the user's present one for this mechanism."""

    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = ITERATIONS_MIN
    """How often to hash the password, 4,096 to 16,384 times; more slows down guessing."""
    salt: bytes | None = field(default=None, repr=False)
    """Usually None, for 32 random bytes."""

    def __post_init__(self) -> None:
        if not self.password:
            raise InvalidSetting(f"expected a password for user {self.user!r}, found none")
        _check_mechanism(self.mechanism)
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_STORED_MAX:
            raise InvalidSetting(
                f"expected {ITERATIONS_MIN} to {ITERATIONS_STORED_MAX} iterations, found "
                f"{self.iterations}"
            )


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to delete, so that the user can no longer log in with this mechanism."""

    user: str
    mechanism: ScramMechanism

    def __post_init__(self) -> None:
        _check_mechanism(self.mechanism)


class UserAdmin(Operations):
    """The operations on SCRAM users; the blocking and the asyncio client offer each as one call."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredential]]:
        """Return credentials by user (None: all users); raises ResourceNotFound if one has none."""
        if users is not None and not (users := names_in(users, "users")):
            return {}  # to a broker, an empty list means all users
        request = DescribeUserScramCredentialsRequest(
            users=None if users is None else [UserName(name=name) for name in users]
        )
        response = await self._core.ask_any(request, DescribeUserScramCredentialsResponse)
        check(response.error_code, "SCRAM credentials", response.error_message)
        answers = ((result.user, result) for result in response.results)
        results = (
            distinct_answers(answers, _name) if users is None else answers_to(users, answers, _name)
        )
        found = {}
        for user, result in results.items():
            check(result.error_code, _name(user), result.error_message)
            found[user] = [
                ScramCredential(
                    member_of(ScramMechanism, one.mechanism, ScramMechanism.UNKNOWN),
                    one.iterations,
                )
                for one in sorted(result.credential_infos, key=lambda one: one.mechanism)
            ]
        return found

    async def alter_user_scram_credentials(
        self, alterations: Iterable[ScramUpsertion | ScramDeletion]
    ) -> None:
        """Set and delete credentials, at most one per user in one call.

        Raises the first error, but the changes for other users are made.
        """
        request = AlterUserScramCredentialsRequest()
        wanted: list[ScramUpsertion | ScramDeletion] = items_in(
            alterations, ScramUpsertion, ScramDeletion
        )
        for one in wanted:
            if isinstance(one, ScramDeletion):
                deletion = ScramCredentialDeletion(name=one.user, mechanism=one.mechanism)
                request.deletions.append(deletion)
            else:
                request.upsertions.append(_upsertion(one))
        response = await self._core.ask_controller(request, AlterUserScramCredentialsResponse)
        results = answers_to(
            (one.user for one in wanted),
            ((result.user, result) for result in response.results),
            _name,
        )
        for user, result in results.items():
            check(result.error_code, _name(user), result.error_message)


def _check_mechanism(mechanism: ScramMechanism) -> None:
    if not isinstance(mechanism, ScramMechanism) or mechanism is ScramMechanism.UNKNOWN:
        found = mechanism.name if isinstance(mechanism, ScramMechanism) else repr(mechanism)
        raise InvalidSetting(f"expected mechanism SCRAM_SHA_256 or SCRAM_SHA_512, found {found}")


def _upsertion(one: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(_SALT_BYTES) if one.salt is None else one.salt
    return ScramCredentialUpsertion(
        name=one.user,
        mechanism=one.mechanism,
        iterations=one.iterations,
        salt=salt,
        salted_password=salted_password(
            one.mechanism.sasl_name, one.password, salt, one.iterations
        ),
    )
