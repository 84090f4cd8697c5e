"""What a scenario file says, as models: strict, and unknown fields are refused.

A file is TOML; `docs/load-tests/scenarios.md` tells of each field. Times are in s unless a name
says otherwise, sizes in bytes, rates in records/s over all users of an entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=200)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
UserCount = Annotated[int, Field(ge=1, le=100_000)]
PartitionCount = Annotated[int, Field(ge=1, le=100_000)]
Replicas = Annotated[int, Field(ge=1, le=32_767)]
Percentile = Literal["p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Beside the type of a field: what holds where it is left out, for documents."""

    text: str


class BadScenario(ValueError):
    """A scenario that makes no sense; the message names each field that is wrong."""

    @classmethod
    def of(cls, where: str, mistakes: Sequence[str]) -> Self:
        """Of some mistakes, each in a line of its own if there are several."""
        if len(mistakes) == 1:
            return cls(f"{where}: {mistakes[0]}")
        return cls("\n  ".join([f"{where}: {len(mistakes)} mistakes", *mistakes]))


class _Model(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Topic(_Model):
    """A topic that the run makes, and removes when it ends."""

    partitions: PartitionCount = 6
    """How many the topic has."""
    replication: Annotated[Replicas | None, LeftOut("3, or fewer brokers")] = None
    """How many brokers have a copy of each partition."""
    settings: dict[str, str] = {}
    """The topic's, by Kafka's names."""

    @field_validator("settings")
    @classmethod
    def _check_policy(cls, settings: dict[str, str]) -> dict[str, str]:
        policy = settings.get("cleanup.policy", "delete")
        if "compact" in policy:
            raise ValueError(
                f"expected cleanup.policy=delete, found {policy}: records that compaction removed "
                "cannot be told from lost ones"
            )
        return settings


class FixedSize(_Model):
    """All values have one size."""

    distribution: Literal["fixed"] = "fixed"
    bytes: Annotated[int, Field(ge=32, le=16_777_216)] = 100
    """Of each value; less than 32 has no room for what is checked."""


class LognormalSize(_Model):
    """Many small values and some large ones."""

    distribution: Literal["lognormal"]
    median: Annotated[int, Field(ge=32)]
    """Half of the values are smaller."""
    sigma: Positive = 1.0
    """Of the logarithm: with 1.0, one in 100 is ten times the median."""
    max: Annotated[int, Field(le=16_777_216)] = 262_144
    """Larger values are cut to it."""


class NoKeys(_Model):
    """Records without keys: the producer's sticky partitioner spreads them."""

    distribution: Literal["none"] = "none"


class UniformKeys(_Model):
    """Keys that are equally likely."""

    distribution: Literal["uniform"]
    count: Count = 10_000
    """How many keys there are."""


class ZipfKeys(_Model):
    """Keys of which a few are much more likely than the others."""

    distribution: Literal["zipf"]
    count: Count = 10_000
    """How many keys there are."""
    exponent: Positive = 1.0
    """The k-th most frequent key has a weight of k to the minus this."""


class HotPartition(_Model):
    """No keys; one partition takes a share of all records, the others the rest in turn."""

    distribution: Literal["hot-partition"]
    partition: Annotated[int, Field(ge=0)] = 0
    """The hot one."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Of all records."""


def _tag(default: str) -> Discriminator:
    """By the field `distribution`, which may be left out."""

    def tag(found: Any) -> Any:
        if isinstance(found, Mapping):
            return found.get("distribution", default)
        return getattr(found, "distribution", None)

    return Discriminator(tag)


Size = Annotated[
    Annotated[FixedSize, Tag("fixed")] | Annotated[LognormalSize, Tag("lognormal")],
    _tag("fixed"),
]
Keys = Annotated[
    Annotated[NoKeys, Tag("none")]
    | Annotated[UniformKeys, Tag("uniform")]
    | Annotated[ZipfKeys, Tag("zipf")]
    | Annotated[HotPartition, Tag("hot-partition")],
    _tag("none"),
]
Settings = dict[str, str | int | float | bool]
"""Of `raylog.client`, by Kafka's names."""


class _Users(_Model):
    count: UserCount = 1
    """Users of this entry over all processes."""
    client: Settings = {}
    """Settings of their clients, by Kafka's names."""


class _Writing(_Users):
    topic: Name
    """One of the scenario's."""
    rate: Positive
    """Records/s of all users together, where the shape is at 1."""
    size: Size = FixedSize()
    """Of values: `{ bytes = 100 }`, or another distribution."""
    keys: Keys = NoKeys()
    """`{ distribution = "zipf" }`, for example."""


class ProducerUsers(_Writing):
    """Send at a rate, whatever the answers take: latency counts from the intended time."""

    kind: Literal["producer"]


class TransactionalUsers(_Writing):
    """Send in transactions, of which some are aborted."""

    kind: Literal["transactional"]
    records: Count = 100
    """In a transaction."""
    aborted: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The share of transactions that are aborted on purpose."""


class ConsumerUsers(_Users):
    """Read partitions as they grow; each user has its share of the topic's."""

    kind: Literal["consumer"]
    topic: Name
    """One of the scenario's."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    """isolation.level."""


class GroupUsers(_Users):
    """Members of one group."""

    kind: Literal["group"]
    topic: Name
    """One of the scenario's."""
    group: Name
    """Entries with the same group are members of one."""
    protocol: Literal["classic", "consumer"] = "classic"
    """group.protocol."""
    static: bool = False
    """Whether members have a group.instance.id (KIP-345)."""
    stays_s: Annotated[Positive | None, LeftOut("never")] = None
    """After how long a member leaves and another comes."""
    processing_ms: NotNegative = 0.0
    """How long a member takes for one record."""


class CatchUpUsers(_Users):
    """Read the whole topic from the beginning, and then again."""

    kind: Literal["catch-up"]
    topic: Name
    """One of the scenario's."""
    starts_s: NotNegative = 0.0
    """When the first reading begins."""


class AdminUsers(_Users):
    """Create, describe and delete topics of their own; look at groups and offsets."""

    kind: Literal["admin"]
    rate: Positive = 1.0
    """Requests/s of all users together."""


class ConnectionUsers(_Users):
    """Connect, ask for metadata, close."""

    kind: Literal["connection-churn"]
    rate: Positive = 10.0
    """Connections/s of all users together."""


Users = Annotated[
    ProducerUsers
    | TransactionalUsers
    | ConsumerUsers
    | GroupUsers
    | CatchUpUsers
    | AdminUsers
    | ConnectionUsers,
    Field(discriminator="kind"),
]


class Steady(_Model):
    """The rates as they stand, for the whole run."""

    kind: Literal["steady"] = "steady"


class Ramp(_Model):
    """From one share of the rates to another, in a straight line over the run."""

    kind: Literal["ramp"]
    start: NotNegative = 0.0
    """Share of the rates at the beginning."""
    end: NotNegative = 1.0
    """Share of the rates at the end; 2.0 for twice the rates."""


class Stairs(_Model):
    """Step by step up until a threshold breaks; the last step that held is the answer."""

    kind: Literal["stairs"]
    start: Positive = 0.2
    """Share of the rates of the first step."""
    step: Positive = 0.2
    """By how much each step is higher."""
    hold_s: Positive = 20.0
    """How long a step lasts; its first quarter is not judged."""


class Spike(_Model):
    """Steady, but for one time at a multiple."""

    kind: Literal["spike"]
    at_s: NotNegative
    """When it begins."""
    lasts_s: Positive
    """How long it takes."""
    factor: Positive
    """Times the rates."""


class Daily(_Model):
    """A day's curve: a sine from `low` to 1 and back in `period_s`."""

    kind: Literal["daily"]
    low: NotNegative = 0.2
    """Share of the rates at night."""
    period_s: Positive = 600.0
    """How long the day is."""


class Sawtooth(_Model):
    """Rises from `low` to 1 in a straight line and falls back at once, over and over."""

    kind: Literal["sawtooth"]
    low: NotNegative = 0.2
    """Share of the rates that it begins with."""
    period_s: Positive = 60.0
    """How long one rise takes."""


Shape = Annotated[Steady | Ramp | Stairs | Spike | Daily | Sawtooth, Field(discriminator="kind")]


class Fault(_Model):
    """Something that happens to the cluster, where it is a Raylog of this machine's."""

    kind: Literal["kill-leader", "kill-coordinator", "kill-controller", "pause-broker", "roll"]
    """What is done; see [Faults](#faults)."""
    at_s: NotNegative
    """When it is done."""
    topic: Annotated[Name | None, LeftOut("the first topic")] = None
    """Of kill-leader and pause-broker: the topic whose partition 0 has the leader."""
    lasts_s: Annotated[Positive | None, LeftOut("10.0")] = None
    """Of pause-broker: how long it takes."""


class Threshold(_Model):
    """What must hold; one that does not makes the exit code 1.

    Exactly one of the limits is there. Those of latency and errors need the operation.
    """

    operation: Name | None = None
    """What the limit is for: "produce", "end-to-end"..."""
    percentile: Percentile | None = None
    """Of the operation's latencies."""
    max_ms: NotNegative | None = None
    """Of the percentile."""
    errors_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Failures of all requests of the operation."""
    lag_records: Annotated[int, Field(ge=0)] | None = None
    """Of all groups together, at the end."""
    throughput_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of the records that were meant to be sent, those that were acknowledged."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        limits = [self.max_ms, self.errors_share, self.lag_records, self.throughput_share]
        if sum(limit is not None for limit in limits) != 1:
            raise ValueError(
                "expected one of max_ms (with percentile), errors_share, lag_records, "
                "throughput_share"
            )
        if (self.max_ms is None) != (self.percentile is None):
            raise ValueError("expected percentile and max_ms together")
        if (self.max_ms is not None or self.errors_share is not None) and self.operation is None:
            raise ValueError("expected operation")
        return self


class Scenario(_Model):
    """A load test: who does what for how long, what happens meanwhile, and what must hold.

    Lost, doubled, reordered and torn records fail every run; no threshold says so.
    """

    name: Name
    """For reports."""
    question: str
    """What a run answers, as a user would ask it."""
    duration_s: Positive
    """How long the load lasts."""
    warmup_s: NotNegative = 5.0
    """The first seconds, which no threshold judges; they belong to the duration."""
    audit: Literal["after", "during"] = "after"
    """When records are read back and compared with what was acknowledged."""
    topics: dict[Name, Topic]
    """`[topics.NAME]` for each; in a run the name ends with the run's."""
    users: Annotated[list[Users], Field(min_length=1)]
    """`[[users]]` for each kind of users."""
    shape: Shape = Steady()
    """`[shape]`: how the load changes over time."""
    faults: list[Fault] = []
    """`[[faults]]` for each."""
    thresholds: list[Threshold] = []
    """`[[thresholds]]` for each."""


def load(path: Path) -> Scenario:
    """Read a file; BadScenario names each field that is wrong, OSError if there is none."""
    return checked(read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """What a file holds, unchecked; BadScenario if it is not TOML, OSError if there is none."""
    try:
        return tomllib.loads(path.read_text())
    except (ValueError, RecursionError) as failure:  # also of numbers with too many digits
        raise BadScenario(f"{path}: not TOML: {failure}") from None


def checked(document: Mapping[str, Any], where: str) -> Scenario:
    """A scenario; BadScenario names each field that is wrong, and where it was read."""
    from raylog.loadtest.scenario_checks import mistakes  # both import the models
    from raylog.loadtest.scenario_errors import described

    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as failure:
        raise BadScenario.of(where, described(failure)) from None
    found = mistakes(scenario)
    if found:
        raise BadScenario.of(where, found)
    return scenario
