"""Checks of functions that an application passes to a client."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodDescriptorType

from raylog.client.errors import InvalidSetting


def check_serializers(**given: object) -> None:
    """Raise InvalidSetting for a serializer or deserializer that does not fit, naming its argument.

    It must accept topic, data and headers. Functions without a signature are accepted.
    """
    for name, function in given.items():
        if function is not None and not _takes_three(function):
            raise InvalidSetting(
                f"expected {name} to be a function of topic, data and headers, such as "
                f"lambda topic, data, headers: ..., found {function!r}"
            )


def argument_names(function: Callable[..., object]) -> list[str]:
    """Return the names of a function's parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]


def _takes_three(function: object) -> bool:
    if not callable(function) or isinstance(function, type | MethodDescriptorType):
        return False  # str.encode accepts three arguments, but the first would be the topic
    try:
        inspect.signature(function).bind("", b"", ())
    except TypeError:
        return False
    except ValueError:  # a built-in function
        return True
    return True
