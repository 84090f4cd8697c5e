"""Errors about schemas: the registry's refusals, and values that do not fit.

Messages name what was expected and what was found, but never credentials.
"""

from __future__ import annotations

from raylog.client.errors import ClientError


class SchemaError(ClientError):
    """Base class of errors about schemas, values and registries."""


class EncodingFailed(SchemaError):
    """A value does not fit the schema it is written with."""


class DecodingFailed(SchemaError):
    """Bytes are not in the wire format, or do not fit the schema they name."""


class RegistryUnavailable(SchemaError):
    """No registry answered within the deadline; `__cause__` is the last failure."""


class NotARegistry(SchemaError):
    """The answer is not a schema registry's: for example HTML, or JSON of another shape."""


class RegistryError(SchemaError):
    """The registry refused a request. `http_status` and `error_code` are from its answer."""

    http_status: int = 0
    error_code: int = 0
    """The registry's own code, such as 40403; 0 if it gave none."""


class SubjectNotFound(RegistryError):
    """40401: the subject does not exist."""


class VersionNotFound(RegistryError):
    """40402: the subject does not have this version."""


class SchemaNotFound(RegistryError):
    """40403: the id does not exist, or the subject does not have the schema."""


class InvalidSchema(RegistryError):
    """42201: the registry cannot read the schema, or one of its references is missing."""


class InvalidVersion(RegistryError):
    """42202: the version is not valid."""


class IncompatibleSchema(RegistryError):
    """409: the subject's compatibility level does not allow the schema."""


class OperationNotPermitted(RegistryError):
    """42205: the registry's mode does not allow the operation, for example READONLY."""


class RegistryUnauthorized(RegistryError):
    """401 or 403: the credentials are missing, wrong or not sufficient."""


_BY_CODE: dict[int, type[RegistryError]] = {
    401: RegistryUnauthorized,
    403: RegistryUnauthorized,
    409: IncompatibleSchema,
    40101: RegistryUnauthorized,
    40301: RegistryUnauthorized,
    40401: SubjectNotFound,
    40402: VersionNotFound,
    40403: SchemaNotFound,
    42201: InvalidSchema,
    42202: InvalidVersion,
    42205: OperationNotPermitted,
}


def refusal(http_status: int, error_code: int, message: str) -> RegistryError:
    """Return the exception for a registry's answer; authorization errors go by HTTP status."""
    by_status = _BY_CODE.get(http_status)
    kind = by_status if by_status is RegistryUnauthorized else _BY_CODE.get(error_code, by_status)
    failure = (kind or RegistryError)(message)
    failure.http_status = http_status
    failure.error_code = error_code
    return failure
