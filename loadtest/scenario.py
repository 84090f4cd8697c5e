"""The models of a scenario file. They are strict: unknown fields are refused.

A file is TOML. `docs/load-tests/scenarios.md` describes each field. Times are in s unless a name
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
    """Metadata of a field's type: its default in words, for the documentation."""

    text: str


class BadScenario(ValueError):
    """An invalid scenario. The message names each wrong field."""

    @classmethod
    def of(cls, where: str, mistakes: Sequence[str]) -> Self:
        """An error with the given mistakes, one per line if there are several."""
        if len(mistakes) == 1:
            return cls(f"{where}: {mistakes[0]}")
        return cls("\n  ".join([f"{where}: {len(mistakes)} mistakes", *mistakes]))


class _Model(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Topic(_Model):
    """A topic that the run creates, and deletes at its end."""

    partitions: PartitionCount = 6
    """Number of partitions."""
    replication: Annotated[Replicas | None, LeftOut("3, or fewer brokers")] = None
    """Replication factor."""
    settings: dict[str, str] = {}
    """Settings of the topic, with Kafka's names."""

    @field_validator("settings")
    @classmethod
    def _check_policy(cls, settings: dict[str, str]) -> dict[str, str]:
        policy = settings.get("cleanup.policy", "delete")
        if "compact" in policy:
            raise ValueError(
                f"expected cleanup.policy=delete, found {policy}: the audit cannot distinguish "
                "compacted records from lost ones"
            )
        return settings


class FixedSize(_Model):
    """All values have the same size."""

    distribution: Literal["fixed"] = "fixed"
    bytes: Annotated[int, Field(ge=32, le=16_777_216)] = 100
    """Size of each value. The audit needs at least 32."""


class LognormalSize(_Model):
    """Many small values and a few large ones."""

    distribution: Literal["lognormal"]
    median: Annotated[int, Field(ge=32)]
    """The median size."""
    sigma: Positive = 1.0
    """Standard deviation of the logarithm. With 1.0, one value in 100 is ten times the median."""
    max: Annotated[int, Field(le=16_777_216)] = 262_144
    """Largest size; larger values are cut to it."""


class NoKeys(_Model):
    """Records without keys. The producer's sticky partitioner distributes them."""

    distribution: Literal["none"] = "none"


class UniformKeys(_Model):
    """All keys are equally likely."""

    distribution: Literal["uniform"]
    count: Count = 10_000
    """Number of keys."""


class ZipfKeys(_Model):
    """A few keys are much more likely than the others."""

    distribution: Literal["zipf"]
    count: Count = 10_000
    """Number of keys."""
    exponent: Positive = 1.0
    """The weight of the k-th most frequent key is k to the power of minus this number."""


class HotPartition(_Model):
    """No keys. One partition gets a share of all records; the others get the rest in turn."""

    distribution: Literal["hot-partition"]
    partition: Annotated[int, Field(ge=0)] = 0
    """The hot partition."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Its share of all records."""


def _tag(default: str) -> Discriminator:
    """A union told apart by `distribution`, which may be left out."""

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
"""Settings of `raylog.client`, by Kafka's names."""


class _Users(_Model):
    count: UserCount = 1
    """Number of users of this entry, in all processes together."""
    client: Settings = {}
    """Settings of their clients, with Kafka's names."""


class _Writing(_Users):
    topic: Name
    """One of the scenario's topics."""
    rate: Positive
    """Records/s of all users together, when the shape is at 1."""
    size: Size = FixedSize()
    """Size of values: `{ bytes = 100 }`, or another distribution."""
    keys: Keys = NoKeys()
    """Distribution of keys, for example `{ distribution = "zipf" }`."""


class ProducerUsers(_Writing):
    """Send at a fixed rate, however slow the answers are. Latency counts from the intended time."""

    kind: Literal["producer"]


class TransactionalUsers(_Writing):
    """Send in transactions, some of which are aborted."""

    kind: Literal["transactional"]
    records: Count = 100
    """Records per transaction."""
    aborted: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The share of transactions that are aborted on purpose."""


class ConsumerUsers(_Users):
    """Read partitions as they grow. The users share the partitions of the topic."""

    kind: Literal["consumer"]
    topic: Name
    """One of the scenario's topics."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    """Setting isolation.level."""


class GroupUsers(_Users):
    """Members of a group."""

    kind: Literal["group"]
    topic: Name
    """One of the scenario's topics."""
    group: Name
    """Group id. Entries with the same id are members of one group."""
    protocol: Literal["classic", "consumer"] = "classic"
    """Setting group.protocol."""
    static: bool = False
    """Whether members have a group.instance.id (KIP-345)."""
    stays_s: Annotated[Positive | None, LeftOut("never")] = None
    """Time after which a member leaves and another one joins."""
    processing_ms: NotNegative = 0.0
    """Time that a member takes for one record."""


class CatchUpUsers(_Users):
    """Read the whole topic from the beginning, over and over."""

    kind: Literal["catch-up"]
    topic: Name
    """One of the scenario's topics."""
    starts_s: NotNegative = 0.0
    """Start of the first reading."""


class AdminUsers(_Users):
    """Create, describe and delete their own topics; list groups and offsets."""

    kind: Literal["admin"]
    rate: Positive = 1.0
    """Requests/s of all users together."""


class ConnectionUsers(_Users):
    """Connect, request metadata, disconnect."""

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
    """The rates of the users, for the whole run."""

    kind: Literal["steady"] = "steady"


class Ramp(_Model):
    """A straight line over the run, from one share of the rates to another."""

    kind: Literal["ramp"]
    start: NotNegative = 0.0
    """Share of the rates at the beginning."""
    end: NotNegative = 1.0
    """Share of the rates at the end; 2.0 for twice the rates."""


class Stairs(_Model):
    """Increase the rates step by step until a threshold fails; the last step that held counts."""

    kind: Literal["stairs"]
    start: Positive = 0.2
    """Share of the rates in the first step."""
    step: Positive = 0.2
    """Increase from one step to the next."""
    hold_s: Positive = 20.0
    """Duration of a step. Its first quarter is not judged."""


class Spike(_Model):
    """Steady, except for a period at a multiple of the rates."""

    kind: Literal["spike"]
    at_s: NotNegative
    """Start of the spike."""
    lasts_s: Positive
    """Duration of the spike."""
    factor: Positive
    """Multiple of the rates."""


class Daily(_Model):
    """The load of a day: a sine wave from `low` to 1 and back in `period_s`."""

    kind: Literal["daily"]
    low: NotNegative = 0.2
    """Share of the rates at night."""
    period_s: Positive = 600.0
    """Length of the day."""


class Sawtooth(_Model):
    """Rise from `low` to 1 in a straight line, fall back at once, and repeat."""

    kind: Literal["sawtooth"]
    low: NotNegative = 0.2
    """Share of the rates at the start of a rise."""
    period_s: Positive = 60.0
    """Duration of one rise."""


Shape = Annotated[Steady | Ramp | Stairs | Spike | Daily | Sawtooth, Field(discriminator="kind")]


class Fault(_Model):
    """A fault of the cluster, which must be a Raylog cluster on this machine."""

    kind: Literal["kill-leader", "kill-coordinator", "kill-controller", "pause-broker", "roll"]
    """One of the faults above."""
    at_s: NotNegative
    """Time of the fault."""
    topic: Annotated[Name | None, LeftOut("the first topic")] = None
    """For kill-leader and pause-broker: the topic whose partition 0 has that leader."""
    lasts_s: Annotated[Positive | None, LeftOut("10.0")] = None
    """For pause-broker: duration of the pause."""


class Threshold(_Model):
    """A limit of the run. If it does not hold, the run fails with exit code 1.

    Give exactly one limit. Limits of latency and errors need the operation.
    """

    operation: Name | None = None
    """Operation that the limit applies to: "produce", "end-to-end"..."""
    percentile: Percentile | None = None
    """Percentile of the operation's latency."""
    max_ms: NotNegative | None = None
    """Limit of that percentile."""
    errors_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Limit of the share of the operation's requests that fail."""
    lag_records: Annotated[int, Field(ge=0)] | None = None
    """Limit of the lag of all groups together, after the end of the load."""
    throughput_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Smallest share of the intended records that must be acknowledged."""

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
    """A load test: the topics, the users, the duration, the faults and the limits that must hold.

    Lost, doubled, reordered and torn records fail every run, without a threshold.
    """

    name: Name
    """Name in reports."""
    question: str
    """The question that a run answers, as a user would ask it."""
    duration_s: Positive
    """Duration of the load."""
    warmup_s: NotNegative = 5.0
    """First part of the duration, which thresholds ignore."""
    audit: Literal["after", "during"] = "after"
    """When the records are read back and compared with what was acknowledged."""
    topics: dict[Name, Topic]
    """`[topics.NAME]` for each topic. A run appends its own name to the topic's."""
    users: Annotated[list[Users], Field(min_length=1)]
    """`[[users]]` for each kind of user."""
    shape: Shape = Steady()
    """`[shape]`: how the load changes over time."""
    faults: list[Fault] = []
    """`[[faults]]` for each fault."""
    thresholds: list[Threshold] = []
    """`[[thresholds]]` for each threshold."""


def load(path: Path) -> Scenario:
    """Read a file. Raises BadScenario, which names each wrong field, or OSError."""
    return checked(read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """The unchecked content of a file. Raises BadScenario if it is not TOML, or OSError."""
    try:
        return tomllib.loads(path.read_text())
    except (ValueError, RecursionError) as failure:  # also for numbers with too many digits
        raise BadScenario(f"{path}: not TOML: {failure}") from None


def checked(document: Mapping[str, Any], where: str) -> Scenario:
    """A validated scenario. Raises BadScenario, which names each wrong field and `where`."""
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
