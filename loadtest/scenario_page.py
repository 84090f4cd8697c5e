"""Generate the page of scenarios from the models: `python -m raylog.loadtest.scenario_page`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raylog.loadtest import scenario
from raylog.loadtest.scenario_errors import kind_of
from raylog.loadtest.shipped import all_shipped

PAGES = (
    ("Scenario", "The fields at the top of the file.", (scenario.Scenario,)),
    ("Topics", "`[topics.NAME]`.", (scenario.Topic,)),
    (
        "Users",
        "`[[users]]`, with a `kind`. The rate of an entry is that of all its users together. "
        "Requests are due at that rate, however slow the answers are, and latency counts from the "
        "time at which a request is due.",
        (
            scenario.ProducerUsers,
            scenario.TransactionalUsers,
            scenario.ConsumerUsers,
            scenario.GroupUsers,
            scenario.CatchUpUsers,
            scenario.AdminUsers,
            scenario.ConnectionUsers,
        ),
    ),
    ("Sizes", "`size` of users that write records.", (scenario.FixedSize, scenario.LognormalSize)),
    (
        "Keys",
        "`keys` of users that write records.",
        (scenario.NoKeys, scenario.UniformKeys, scenario.ZipfKeys, scenario.HotPartition),
    ),
    (
        "Shapes",
        "`[shape]`, with a `kind`: how the rates change over time, as a share of the given rates.",
        (
            scenario.Steady,
            scenario.Ramp,
            scenario.Stairs,
            scenario.Spike,
            scenario.Daily,
            scenario.Sawtooth,
        ),
    ),
    (
        "Faults",
        "`[[faults]]`. They need a cluster that `raylog up` started on this machine. Killed "
        "processes are restarted automatically.",
        (scenario.Fault,),
    ),
    (
        "Thresholds",
        "`[[thresholds]]`. They ignore the warm-up. With stairs, the last step that held counts.",
        (scenario.Threshold,),
    ),
)
_FAULTS = """\
| fault | what happens |
|---|---|
| `kill-leader` | SIGKILL to all processes of the broker that leads partition 0 of the topic |
| `kill-coordinator` | SIGKILL to the coordinator of the first group, or of the transactions |
| `kill-controller` | SIGKILL to the controller |
| `pause-broker` | SIGSTOP to all processes of the leader of partition 0, SIGCONT after `lasts_s` |
| `roll` | `raylog brokers restart --all` |
"""
HEAD = """\
# Scenarios

A scenario is a TOML file that describes a load and the limits that must hold. Times are in seconds,
sizes in bytes. Lost, doubled, reordered and torn records fail every run, without a threshold.

```toml
name = "mine"
question = "Is p99 below 50 ms at 5,000 records/s?"
duration_s = 60

[topics.orders]
partitions = 6

[[users]]
kind = "producer"
topic = "orders"
count = 4
rate = 5000

[[thresholds]]
operation = "produce"
percentile = "p99_ms"
max_ms = 50
```

To change a scenario for one run:

| option | what it changes |
|---|---|
| `--set users.0.rate=20000` | one field |
| `--scale 0.5` | all rates |
| `--duration 30` | the duration, and all times after the warm-up in proportion |

The warm-up keeps its length with `--duration` if it is at most half of the run.

A file is checked before anything runs. Unknown fields and operations, times outside the run and
wrong client settings are refused, with one line for each.

Requests are counted by operation:

| operation | what is measured |
|---|---|
| `produce` | a record, from its intended time to its acknowledgement |
| `end-to-end` | a record, from its intended time until a consumer or a member of a group has it |
| `transaction`, `abort` | from the intended time of a transaction's last record to its end |
| `join`, `rebalance`, `commit` | a join, a rebalance, a commit of a group member |
| `catch-up`, `catch-up-poll` | reading the whole topic; one poll of it |
| `create-topic`, `describe-topic`, `delete-topic` | a request of an `admin` user |
| `list-offsets`, `list-groups` | a request of an `admin` user |
| `connect` | a new connection and a metadata request |

This page is generated from the models: `python -m raylog.loadtest.scenario_page`.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_shipped(), *_fields()])


def _shipped() -> Iterator[str]:
    yield "## Scenarios that come with Raylog\n"
    yield "The rates fit a laptop with two cores; adapt them with `--scale`.\n"
    yield "| scenario | question | duration |"
    yield "|---|---|---|"
    for one in all_shipped():
        yield f"| `{one.name}` | {one.question} | {one.duration_s:g} s |"
    yield ""


def _fields() -> Iterator[str]:
    for title, about, models in PAGES:
        yield f"## {title}\n\n{about}\n"
        if title == "Faults":
            yield _FAULTS
        for model in models:
            yield from _model(model, is_alone=len(models) == 1)


def _model(model: type[BaseModel], *, is_alone: bool) -> Iterator[str]:
    if not is_alone:
        yield f"### `{kind_of(model)[1]}`\n"
    yield f"{inspect.cleandoc(model.__doc__ or '')}\n"
    fields = {
        name: field
        for name, field in model.model_fields.items()
        if not _names_the_kind(name, field)
    }
    if not fields:
        return
    yield "| field | required, or default | meaning |"
    yield "|---|---|---|"
    for name, field in fields.items():
        yield f"| `{name}` | {_default(field)} | {_meaning(field)} |"
    yield ""


def _names_the_kind(name: str, field: FieldInfo) -> bool:
    return name in ("kind", "distribution") and len(get_args(field.annotation)) == 1


def _default(field: FieldInfo) -> str:
    """The default of a field as in a file."""
    left_out = next((one for one in field.metadata if isinstance(one, scenario.LeftOut)), None)
    if left_out is not None:
        return left_out.text
    if field.is_required():
        return "required"
    if field.default is None:
        return "none"
    return f"`{_toml(field.default)}`"


def _toml(value: object) -> str:
    if isinstance(value, BaseModel):
        fields = ", ".join(f"{name} = {_toml(one)}" for name, one in value)
        return f"{{ {fields} }}"
    return json.dumps(value)


def _meaning(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    choices = _choices(field)
    return f"{text} {choices}".strip() if choices else text


def _choices(field: FieldInfo) -> str:
    for kind in (field.annotation, *get_args(field.annotation)):  # it, or a member of `... | None`
        if get_origin(kind) is Literal:
            return f"One of {', '.join(f'`{one}`' for one in get_args(kind))}."
    return ""


if __name__ == "__main__":
    sys.stdout.write(markdown())
