"""Finds the handler of each API. Every API of `wire/api.py` is served, and ApiVersions reports it.

A handler is a function `(RequestContext, request) -> response`, a coroutine of the same kind, or a
function that returns None and answers through the context later. It has the name of its API, in a
module of that name unless `_MODULES` says otherwise. APIs without a module are in `refused.py`.
Modules are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from raylog.actors.coordinator_kinds import KINDS
from raylog.wire.api import ApiKey

_MODULES = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "client_quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram_credentials",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "telemetry",
    ApiKey.PUSH_TELEMETRY: "telemetry",
}
"""Modules with the handlers of several APIs."""
FORWARDED = {api_key: role for role, kind in KINDS.items() for api_key in kind.apis}
"""APIs whose body is forwarded unchanged to the coordinator of this role."""


def served_versions(*, two_phase_commit: bool = False) -> dict[int, range]:
    """Return the served versions by API key; `two_phase_commit` adds those for KIP-939."""
    served = {int(api_key): api_key.versions for api_key in ApiKey}
    if two_phase_commit:
        known = ApiKey.INIT_PRODUCER_ID
        served[known] = range(known.first_version, known.last_version + 1)
    return served


@cache
def handler_of(api_key: ApiKey) -> Callable[..., Any]:
    """Return the handler of an API."""
    name = "forwarded" if api_key in FORWARDED else api_key.name.lower()
    module = f"{__package__}.{_MODULES.get(api_key, name)}"
    handler: Callable[..., Any]
    if find_spec(module) is None:
        handler = import_module(f"{__package__}.refused").REFUSALS[api_key]
    else:
        handler = getattr(import_module(module), name)
    return handler
