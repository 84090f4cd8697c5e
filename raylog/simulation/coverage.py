"""Counts how often branches of the real code are reached while a simulation runs.

A branch is a function and a condition on its arguments, its result or its exception. The function
is replaced while the simulation runs, so the product's code needs no marks.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

Arguments = tuple[Any, ...]
Seen = Callable[[Any, Arguments], bool]
"""Whether a call reached the branch, from its result and positional arguments."""


def always(_result: object, _arguments: Arguments) -> bool:
    """Every call that returns reaches the branch."""
    return True


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch that every campaign must reach."""

    name: str
    owner: Any
    """The class or module that has the function."""
    function: str
    seen: Seen = always
    before: bool = False
    """Whether to check the arguments before the call, because the call changes them."""
    refused: type[Exception] | None = None
    """The exception by which the branch ends. `seen` then gets it in place of the result."""


class Coverage:
    """The counts of one simulation."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self.counts: Counter[str] = Counter({one.name: 0 for one in branches})
        self._by_function: dict[tuple[Any, str], list[Branch]] = {}
        for one in branches:
            self._by_function.setdefault((one.owner, one.function), []).append(one)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count within the context."""
        with ExitStack() as stack:
            for (owner, function), branches in self._by_function.items():
                original = inspect.getattr_static(owner, function)
                watched = self._watched(original, branches)
                stack.enter_context(patch.object(owner, function, watched))
            yield

    def _watched(self, original: Any, branches: Sequence[Branch]) -> Any:
        """The function with counting. Static, class and async functions keep their kind."""
        if isinstance(original, staticmethod | classmethod):
            return type(original)(self._watched(original.__func__, branches))
        calls = _Calls(branches, self.counts)

        @wraps(original)
        def watched(*args: Any, **named: Any) -> Any:
            calls.begun(args)
            try:
                result = original(*args, **named)
            except Exception as failure:
                calls.refused(failure, args)
                raise
            calls.returned(result, args)
            return result

        @wraps(original)
        async def awaited(*args: Any, **named: Any) -> Any:
            calls.begun(args)
            try:
                result = await original(*args, **named)
            except Exception as failure:
                calls.refused(failure, args)
                raise
            calls.returned(result, args)
            return result

        return awaited if inspect.iscoroutinefunction(original) else watched


class _Calls:
    """Counts the branches of one function's calls."""

    __slots__ = ("_at_begin", "_at_refusal", "_at_return", "_counts")

    def __init__(self, branches: Sequence[Branch], counts: Counter[str]) -> None:
        self._counts = counts
        self._at_begin = [one for one in branches if one.before]
        self._at_refusal = [one for one in branches if one.refused is not None]
        self._at_return = [one for one in branches if not (one.before or one.refused)]

    def begun(self, arguments: Arguments) -> None:
        for one in self._at_begin:
            self._counts[one.name] += one.seen(None, arguments)

    def returned(self, result: object, arguments: Arguments) -> None:
        for one in self._at_return:
            self._counts[one.name] += one.seen(result, arguments)

    def refused(self, failure: Exception, arguments: Arguments) -> None:
        for one in self._at_refusal:
            if one.refused is not None and isinstance(failure, one.refused):
                self._counts[one.name] += one.seen(failure, arguments)
