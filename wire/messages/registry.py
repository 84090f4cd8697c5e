"""Finds message classes by API key; imports a module when its API is first used."""

from functools import cache
from importlib import import_module

from raylog.wire.api import ApiKey


@cache
def request_class(api_key: ApiKey) -> type:
    """The request of an API."""
    return _message_class(api_key, "Request")


@cache
def response_class(api_key: ApiKey) -> type:
    """The response of an API."""
    return _message_class(api_key, "Response")


def _message_class(api_key: ApiKey, suffix: str) -> type:
    module = import_module(f"raylog.wire.messages.{api_key.name.lower()}")
    found = getattr(module, api_key.name.title().replace("_", "") + suffix)
    assert isinstance(found, type)
    return found
