"""Tools to plant mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

Plant = Callable[[ExitStack], None]


def replace(stack: ExitStack, owner: object, name: str, value: object) -> None:
    """Replace a function or an attribute of a class."""
    stack.enter_context(patch.object(owner, name, value))


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Make one mistake within the context."""
    with ExitStack() as stack:
        plant(stack)
        yield


def plants_into(plants: dict[str, Plant]) -> Callable[[Plant], Plant]:
    """A decorator that names a mistake by its function."""

    def plant(function: Plant) -> Plant:
        plants[function.__name__] = function
        return function

    return plant
