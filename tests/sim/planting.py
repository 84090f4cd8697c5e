"""What planted mistakes are made with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

Plant = Callable[[ExitStack], None]


def replace(stack: ExitStack, owner: object, name: str, value: object) -> None:
    """Have something else in the place of a function or an attribute of a class."""
    stack.enter_context(patch.object(owner, name, value))


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Make one mistake while entered."""
    with ExitStack() as stack:
        plant(stack)
        yield
