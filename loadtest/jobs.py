"""Messages between the command and the processes of a run: lines of JSON on pipes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from raylog.loadtest.results import Result
from raylog.loadtest.scenario import Fault, Scenario

INTERRUPTED = "interrupted"
"""The reason for the early end of an interrupted run."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Job(_Model):
    """A run, as the leading process gets it."""

    scenario: Scenario
    run: str
    bootstrap: str
    security: dict[str, str | int | float | bool]
    """Settings of every client."""
    target: str
    """The kind of the brokers; empty if the run has to find it out."""
    workers: int
    """The number of processes that make the load; 0 if the leading process does that itself."""
    bind: str = "127.0.0.1"
    """The address on which it listens for workers."""
    web: tuple[str, int] | None = None
    """Host and port of Locust's web page."""
    locust_html: str | None = None
    """The path of Locust's own report."""
    keep_topics: bool = False


class WorkerJob(_Model):
    """The first message to a worker."""

    scenario: Scenario
    host: str
    port: int
    """The port of the leading process."""


# ---- messages of the leading process -----------------------------------------------------


class Listening(_Model):
    """Workers may connect."""

    kind: Literal["listening"] = "listening"
    port: int


class Said(_Model):
    """A text for people."""

    kind: Literal["said"] = "said"
    text: str


class Progress(_Model):
    """The progress over the last seconds."""

    kind: Literal["progress"] = "progress"
    at_s: float
    of_s: float
    operation: str
    per_s: float
    p99_ms: float | None
    errors: int
    """All errors so far."""
    lag: int | None


class StrikeDue(_Model):
    """A fault is due. `Struck` is the answer."""

    kind: Literal["strike"] = "strike"
    fault: Fault


class TopicsMade(_Model):
    """These topics are about to be created. They exist until `TopicsRemoved`."""

    kind: Literal["topics-made"] = "topics-made"
    names: list[str]


class TopicsRemoved(_Model):
    """The topics of the run are removed, except those that the result names."""

    kind: Literal["topics-removed"] = "topics-removed"


class Ended(_Model):
    """The run is over."""

    kind: Literal["ended"] = "ended"
    result: Result


class Failed(_Model):
    """The run has no result."""

    kind: Literal["failed"] = "failed"
    message: str
    unreachable: bool = False
    """Whether no broker answered."""


Report = Annotated[
    Listening | Said | Progress | StrikeDue | TopicsMade | TopicsRemoved | Ended | Failed,
    Field(discriminator="kind"),
]
report_adapter: TypeAdapter[Report] = TypeAdapter(Report)


# ---- orders to it ------------------------------------------------------------------------


class Stop(_Model):
    """End the run now."""

    kind: Literal["stop"] = "stop"
    why: str


class Struck(_Model):
    """The outcome of a fault."""

    kind: Literal["struck"] = "struck"
    text: str
    failed: bool = False


class BreakOff(_Model):
    """End the run without a valid result, because a worker's process ended."""

    kind: Literal["break-off"] = "break-off"
    why: str


Order = Annotated[Stop | Struck | BreakOff, Field(discriminator="kind")]
order: TypeAdapter[Order] = TypeAdapter(Order)
