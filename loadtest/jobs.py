"""What the processes of a run are told, and what they tell: lines of JSON on pipes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from raylog.loadtest.results import Result
from raylog.loadtest.scenario import Fault, Scenario

INTERRUPTED = "interrupted"
"""Why a run was ended early that somebody interrupted."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Job(_Model):
    """A run, as the process that leads it is told."""

    scenario: Scenario
    run: str
    bootstrap: str
    security: dict[str, str | int | float | bool]
    """Settings of every client."""
    target: str
    """What the brokers are, in words; empty if that is to be found out."""
    workers: int
    """Processes that make the load; 0: the leading process does itself."""
    bind: str = "127.0.0.1"
    """Where it listens for workers."""
    web: tuple[str, int] | None = None
    """Host and port of Locust's page."""
    locust_html: str | None = None
    """Where Locust's own report is written."""
    keep_topics: bool = False


class WorkerJob(_Model):
    """What a worker is told."""

    scenario: Scenario
    host: str
    port: int
    """Of the leading process."""


# ---- told by the leading process ---------------------------------------------------------


class Listening(_Model):
    """Workers may connect."""

    kind: Literal["listening"] = "listening"
    port: int


class Said(_Model):
    """Something that a person wants to know."""

    kind: Literal["said"] = "said"
    text: str


class Progress(_Model):
    """How the run goes, over the last seconds."""

    kind: Literal["progress"] = "progress"
    at_s: float
    of_s: float
    operation: str
    per_s: float
    p99_ms: float | None
    errors: int
    """Of all operations, so far."""
    lag: int | None


class StrikeDue(_Model):
    """A fault is due; `Struck` is the answer."""

    kind: Literal["strike"] = "strike"
    fault: Fault


class TopicsMade(_Model):
    """These topics are about to be made, and will be there until `TopicsRemoved`."""

    kind: Literal["topics-made"] = "topics-made"
    names: list[str]


class TopicsRemoved(_Model):
    """No topic of the run is left, but for those that the result names."""

    kind: Literal["topics-removed"] = "topics-removed"


class Ended(_Model):
    """The run is over."""

    kind: Literal["ended"] = "ended"
    result: Result


class Failed(_Model):
    """There is no result."""

    kind: Literal["failed"] = "failed"
    message: str
    unreachable: bool = False
    """Whether no broker answered."""


Told = Annotated[
    Listening | Said | Progress | StrikeDue | TopicsMade | TopicsRemoved | Ended | Failed,
    Field(discriminator="kind"),
]
told: TypeAdapter[Told] = TypeAdapter(Told)


# ---- told to it --------------------------------------------------------------------------


class Stop(_Model):
    """End the run now."""

    kind: Literal["stop"] = "stop"
    why: str


class Struck(_Model):
    """What became of a fault."""

    kind: Literal["struck"] = "struck"
    text: str
    failed: bool = False


class BreakOff(_Model):
    """The run proves nothing any more: a worker's process ended."""

    kind: Literal["break-off"] = "break-off"
    why: str


Order = Annotated[Stop | Struck | BreakOff, Field(discriminator="kind")]
order: TypeAdapter[Order] = TypeAdapter(Order)
