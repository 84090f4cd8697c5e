"""Decorators that turn coroutines into tests, with or without a world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any

Scenario = Callable[..., Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Fixture:
    """A placeholder for the fixture or test parameter of this name."""

    name: str


TMP_PATH = Fixture("tmp_path")


def in_loop(scenario: Scenario) -> Callable[..., None]:
    """Return a test that runs the coroutine in its own event loop."""

    @wraps(scenario)
    def test(**given: Any) -> None:
        asyncio.run(scenario(**given))

    return test


def in_world(
    run: Callable[..., object], *arguments: object, **options: object
) -> Callable[[Scenario], Callable[..., None]]:
    """Return a decorator whose test runs `run(scenario, *arguments, **options)`.

    The scenario's keyword-only parameters come from pytest.
    """
    named = [one.name for one in (*arguments, *options.values()) if isinstance(one, Fixture)]

    def decorate(scenario: Scenario) -> Callable[..., None]:
        parameters = signature(scenario).parameters.values()
        own = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
        names = [one.name for one in own]

        @wraps(scenario)
        def test(**given: Any) -> None:
            def real(one: object) -> object:
                return given[one.name] if isinstance(one, Fixture) else one

            run(
                partial(scenario, **{name: given[name] for name in names}),
                *map(real, arguments),
                **{key: real(one) for key, one in options.items()},
            )

        beside = [Parameter(one, Parameter.KEYWORD_ONLY) for one in named if one not in names]
        test.__signature__ = Signature([*own, *beside])  # type: ignore[attr-defined]  # for pytest
        return test

    return decorate
