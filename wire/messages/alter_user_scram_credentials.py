"""AlterUserScramCredentials, API key 51 (KIP-554)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512


@struct
class ScramCredentialUpsertion:
    """A credential to set."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)  # the password itself never travels


@message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """The changes. Each user succeeds or fails on its own."""

    deletions: list[ScramCredentialDeletion] = wire(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = wire(array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult:
    """The outcome for one user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


@message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    results: list[AlterUserScramCredentialsResult] = wire(array(AlterUserScramCredentialsResult))
