"""What became of the requests: a table of API, version and error code, and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

from raylog.wire.api import ApiKey
from raylog.wire.error_codes import ErrorCode
from raylog.wire.messages.registry import response_class
from raylog.wire.schema import Array, Kind, layout_of

FIRST_CHECKS = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""A request all whose codes are of these found nothing to apply rules to: an unknown name or id, or
a form that is refused at sight."""

CLOSED, WAITED, SILENT = "closed", "waits", "no answer"
"""Outcomes without an answer; the last is right with acks=0 only."""

FAILURES_MAX = 40


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that must not happen, and how to see it again."""

    what: str
    episode: int
    request: str
    replay: str = ""
    """File with the frames that the connection had carried."""


@dataclass(slots=True)
class Tally:
    """Counts over a campaign."""

    codes: dict[tuple[ApiKey, int], Counter[str]] = field(default_factory=dict)
    """API and version -> outcome -> how many requests had it."""
    sent: int = 0
    reached: int = 0
    """Requests that reached a handler's rules."""
    failures: list[Failure] = field(default_factory=list)
    _kinds: Counter[tuple[str, str]] = field(default_factory=Counter)

    def answered(self, api_key: ApiKey, version: int, codes: Iterable[int]) -> None:
        """Count an answer by the error codes in it, each once."""
        found = set(codes)
        counter = self._counter(api_key, version)
        for code in found:
            counter[_name_of(code)] += 1
        if not found:
            counter["empty"] += 1
        elif not found <= FIRST_CHECKS:
            self.reached += 1

    def unanswered(self, api_key: ApiKey, version: int, outcome: str) -> None:
        """Count a request without an answer."""
        self._counter(api_key, version)[outcome] += 1

    def fail(self, failure: Failure, kind: str) -> bool:
        """Note a failure; False if there are enough of this kind."""
        key = (failure.what.split(":")[0], kind)
        self._kinds[key] += 1
        if self._kinds[key] > 3 or len(self.failures) >= FAILURES_MAX:
            return False
        self.failures.append(failure)
        return True

    def failure_counts(self) -> dict[str, int]:
        """Kind of failure -> how often, also those not kept."""
        return {f"{what} ({kind})": count for (what, kind), count in self._kinds.items()}

    @property
    def share_reached(self) -> float:
        """Of the requests sent."""
        return self.reached / max(1, self.sent)

    def missing(self, served: Mapping[int, range]) -> list[str]:
        """What is announced and has no entry."""
        return [
            f"{ApiKey(key).name} v{version}"
            for key, versions in served.items()
            for version in versions
            if (ApiKey(key), version) not in self.codes
        ]

    def lines(self) -> list[str]:
        """The table, a line for each API and version."""
        return [
            f"{api_key.name:<30} v{version:<3} "
            + "  ".join(f"{name} {count}" for name, count in counter.most_common())
            for (api_key, version), counter in sorted(self.codes.items())
        ]

    def _counter(self, api_key: ApiKey, version: int) -> Counter[str]:
        self.sent += 1
        return self.codes.setdefault((api_key, version), Counter())


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"code {code}"


_Reader = Callable[[Any, list[int]], None]


def codes_of(api_key: ApiKey, version: int, answer: Any) -> list[int]:
    """All error codes in an answer. NONE of a whole does not count beside those of its parts."""
    reader = _reader(response_class(api_key), version)
    found: list[int] = []
    if reader is not None:
        reader(answer, found)
    return found


@cache
def _reader(cls: type, version: int) -> _Reader | None:
    """Collects the error codes of a struct and those in it; None if it has none."""
    own: list[Callable[[Any], int]] = []
    arrays: list[tuple[Callable[[Any], Any], _Reader]] = []
    for one in layout_of(cls).fields:
        if version not in one.versions:
            continue
        get = attrgetter(one.name)
        if isinstance(one.kind, Kind):
            if one.name.endswith("error_code") and one.name != "topic_config_error_code":
                own.append(get)
            continue
        element = one.kind.element if isinstance(one.kind, Array) else None
        reader = _reader(element, version) if isinstance(element, type) else None
        if reader is not None:
            arrays.append((get, reader))
    if not own and not arrays:
        return None

    def read(value: Any, found: list[int]) -> None:
        before = len(found)
        for get, each in arrays:
            for part in get(value) or ():
                each(part, found)
        has_parts = len(found) > before
        found.extend([code for get in own if (code := get(value)) or not has_parts])

    return read
