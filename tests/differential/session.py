"""A session: a name, and its steps on the stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from raylog.wire.errors import DecodeError
from tests.differential.session_stage import Stage, Transcript

Play = TypeVar("Play", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Session:
    """One scripted session. Its name before the dot is also its group's."""

    name: str
    play: Callable[[Stage], None]

    def run(self, address: str, expected: Transcript | None = None) -> Transcript:
        """Play it to a broker; what it was answered.

        A script that cannot go on, because an answer lacks what it builds on, ends there.
        """
        stage = Stage(address, self.name, expected)
        try:
            self.play(stage)
        except (AttributeError, KeyError, IndexError, DecodeError, OSError) as failure:
            stage.transcript.append({"script": [f"{type(failure).__name__}: {failure}"]})
        finally:
            stage.close()
        return stage.transcript


class Sessions(list[Session]):
    """The sessions of a module, made from its functions."""

    def of(self, name: str, cases: Iterable[Any] = ()) -> Callable[[Play], Play]:
        """Add a session, or one of each case, which is then the function's second argument."""

        def add(play: Play) -> Play:
            found = [_of_case(name, play, case) for case in cases]
            self.extend(found or [Session(name, play)])
            return play

        return add


def _of_case(name: str, play: Callable[..., None], case: Any) -> Session:
    called = re.sub(r"[^a-z0-9-]", "-", name.format(case))
    return Session(called, lambda stage: play(stage, case))
