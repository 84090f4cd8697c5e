"""Delegation tokens: secrets that replace a user's password until they expire (KIP-48).

Brokers issue them only to clients that have logged in, and only if `delegation.token.secret.key` is
set. Changes are not retried once they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.client.admin.base import Operations, names_in, split_principal
from raylog.client.errors import NotSupported
from raylog.client.refusals import check
from raylog.wire.api import ApiKey
from raylog.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from raylog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from raylog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from raylog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_BROKERS_CHOICE = -1
_OWNER_SINCE = 3
"""First CreateDelegationToken version that accepts an owner (KIP-373)."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Times are Unix times in ms; principals are type and name, as in "User:ann"."""

    token_id: str
    """The user name to log in with."""
    hmac: bytes = field(repr=False)
    """The secret. Encoded in base64, it is the password to log in with."""
    owner: str
    requester: str | None
    """Who requested the token; None if the broker is too old to say (before Kafka 3.3)."""
    renewers: tuple[str, ...]
    """Who may renew it besides the owner."""
    issued_ms: int
    expires_ms: int
    """When it expires unless it is renewed."""
    max_ms: int
    """Renewals cannot extend it beyond this time."""


class TokenAdmin(Operations):
    """The operations on tokens; the blocking and the asyncio client offer each as one call."""

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token for this client's user, or for another owner (KIP-373).

        Without `max_lifetime_ms` it lives for the broker's `delegation.token.max.lifetime.ms`.
        Raises DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed.
        """
        renewers = tuple(names_in(renewers, "renewers"))
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(split_principal, renewers)
            ],
            max_lifetime_ms=_BROKERS_CHOICE if max_lifetime_ms is None else max_lifetime_ms,
        )
        if owner is not None:
            node_id = await self._core.repeat(self._core.controller)
            key = ApiKey.CREATE_DELEGATION_TOKEN
            if await self._core.version_on(node_id, key) < _OWNER_SINCE:
                raise NotSupported("the broker is too old to create tokens for another owner")
            request.owner_principal_type, request.owner_principal_name = split_principal(owner)
        response = await self._core.ask_controller(request, CreateDelegationTokenResponse)
        check(response.error_code, "delegation token")
        return DelegationToken(
            response.token_id,
            bytes(response.hmac),
            f"{response.principal_type}:{response.principal_name}",
            _requester(
                response.token_requester_principal_type, response.token_requester_principal_name
            ),
            renewers,
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that this client's user may see, of owners or renewers (None: all)."""
        request = DescribeDelegationTokenRequest(
            owners=None
            if owners is None
            else [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(split_principal, names_in(owners, "owners"))
            ]
        )
        response = await self._core.ask_any(request, DescribeDelegationTokenResponse)
        check(response.error_code, "delegation tokens")
        return [
            DelegationToken(
                token.token_id,
                bytes(token.hmac),
                f"{token.principal_type}:{token.principal_name}",
                _requester(
                    token.token_requester_principal_type, token.token_requester_principal_name
                ),
                tuple(f"{one.principal_type}:{one.principal_name}" for one in token.renewers),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
            )
            for token in response.tokens
        ]

    async def renew_delegation_token(self, hmac: bytes, period_ms: int | None = None) -> int:
        """Extend a token's life to `period_ms` from now (None: the broker's default).

        Return when it expires, as Unix time in ms.
        """
        request = RenewDelegationTokenRequest(
            hmac=_secret(hmac), renew_period_ms=_BROKERS_CHOICE if period_ms is None else period_ms
        )
        response = await self._core.ask_controller(request, RenewDelegationTokenResponse)
        check(response.error_code, "delegation token")
        return response.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, after_ms: int | None = None) -> int:
        """Make a token expire in `after_ms` from now (None: at once).

        Return when it expires, as Unix time in ms.
        """
        request = ExpireDelegationTokenRequest(
            hmac=_secret(hmac),
            expiry_time_period_ms=_BROKERS_CHOICE if after_ms is None else after_ms,
        )
        response = await self._core.ask_controller(request, ExpireDelegationTokenResponse)
        check(response.error_code, "delegation token")
        return response.expiry_timestamp_ms


def _secret(hmac: bytes) -> bytes:
    """Return the secret of a token, after checking its type."""
    if not isinstance(hmac, bytes):
        raise TypeError(f"expected a token's hmac, which is bytes, found {type(hmac).__name__}")
    return hmac


def _requester(kind: str, name: str) -> str | None:
    return f"{kind}:{name}" if name else None
