"""DescribeUserScramCredentials, API key 50: the SCRAM credentials of users (KIP-554)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class UserName:
    """One user."""

    name: str = wire(STRING)


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """The users to describe."""

    users: list[UserName] | None = wire(array(UserName), nullable="0+")  # None or none: all


@struct
class CredentialInfo:
    """One credential."""

    mechanism: int = wire(INT8)  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: int = wire(INT32)


@struct
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    credential_infos: list[CredentialInfo] = wire(array(CredentialInfo))


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The users. Each succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = wire(
        array(DescribeUserScramCredentialsResult)
    )
