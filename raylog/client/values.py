"""What all settings dataclasses share: equality, hash and repr based on their fields.

`dataclass` would compile these methods for each class, which costs a millisecond at every start.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class Values:
    """Base for dataclasses declared with `eq=False, repr=False`."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values) or type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        """Leave out secrets such as passwords."""
        one: Any = self
        shown = (f"{at.name}={getattr(one, at.name)!r}" for at in fields(one) if at.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _values(one: Any) -> tuple[object, ...]:
    return tuple(getattr(one, at.name) for at in fields(one))
