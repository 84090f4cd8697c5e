"""What polls are given."""

from __future__ import annotations

from raylog.client.errors import InvalidSetting


def require_timeout(timeout_ms: object) -> None:
    """Raise InvalidSetting unless it is a time to wait; one that is over already is, too."""
    if not isinstance(timeout_ms, int | float) or timeout_ms != timeout_ms:
        raise InvalidSetting(f"expected timeout_ms to be a number of ms, found {timeout_ms!r}")


def require_limits(**limits: object) -> None:
    """Raise InvalidSetting unless each is a number of 1 or more."""
    for name, limit in limits.items():
        if not isinstance(limit, int) or limit < 1:
            raise InvalidSetting(f"expected {name} to be a number of 1 or more, found {limit!r}")
