"""Checks of scenarios that pydantic cannot do: unknown names, times outside the run, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raylog.client.errors import InvalidSetting
from raylog.client.setting_parsing import client_and_consumer, client_and_producer, client_only
from raylog.loadtest.operations import BY_KIND, operations_of
from raylog.loadtest.scenario import (
    BadScenario,
    CatchUpUsers,
    ConsumerUsers,
    Daily,
    Fault,
    GroupUsers,
    HotPartition,
    LognormalSize,
    ProducerUsers,
    Ramp,
    Sawtooth,
    Scenario,
    Spike,
    Stairs,
    Threshold,
    TransactionalUsers,
    Users,
)
from raylog.loadtest.scenario_errors import nearest, shown

HOLD_S_MIN = 4.0
_ROUNDING = 1 + 1e-9
"""Times that were scaled may exceed a limit by this factor."""
_WRITERS = (ProducerUsers, TransactionalUsers)
_OWN_SETTINGS = {
    "bootstrap.servers": "give the brokers on the command line",
    "group.id": "the load test sets it: use the field group of kind group",
    "group.instance.id": "the load test sets it: use the field static of kind group",
    "group.protocol": "the load test sets it: use the field protocol of kind group",
    "transactional.id": "the load test sets it: use kind transactional",
}
"""Client settings that a scenario must not set, and why."""
NOBODY = "127.0.0.1:9092"
"""The address for checking settings. Nobody connects to it."""


def mistakes(scenario: Scenario) -> list[str]:
    """The mistakes of a scenario, one line each; none if it is valid."""
    return [
        *_of_times(scenario),
        *_of_users(scenario),
        *_of_faults(scenario),
        *_of_thresholds(scenario),
        *_of_clients(scenario, {}),
    ]


def check_clients(scenario: Scenario, given: Mapping[str, object]) -> None:
    """Check the settings that every client gets, together with those of each entry.

    Raises InvalidSetting for the former and BadScenario for the latter.
    """
    client_only({"bootstrap.servers": NOBODY, **given}, {})
    found = list(_of_clients(scenario, given))
    if found:
        raise BadScenario.of(scenario.name, found)


# ---- times -------------------------------------------------------------------------------


def _of_times(scenario: Scenario) -> Iterator[str]:
    lasts_s = scenario.duration_s
    if scenario.warmup_s >= lasts_s:
        yield (f"warmup_s: expected less than duration_s, {lasts_s:g}, found {scenario.warmup_s:g}")
        return
    shape, within_s = scenario.shape, lasts_s * _ROUNDING
    match shape:
        case Spike() if shape.at_s + shape.lasts_s > within_s:
            yield (
                f"shape: expected a spike that ends within the run of {lasts_s:g} s, found one "
                f"from {shape.at_s:g} s to {shape.at_s + shape.lasts_s:g} s (at_s + lasts_s)"
            )
        case Stairs() if shape.hold_s < HOLD_S_MIN:
            yield (
                f"shape.hold_s: expected {HOLD_S_MIN:g} s or more, or no whole second of a step is "
                f"judged, found {shape.hold_s:g} s"
            )
        case Stairs() if scenario.warmup_s + shape.hold_s > within_s:
            yield (
                f"shape.hold_s: expected a step to fit into the {lasts_s - scenario.warmup_s:g} s "
                f"after the warm-up, found {shape.hold_s:g} s"
            )
        case Ramp() if shape.start == shape.end == 0:
            yield "shape: expected a ramp with start or end above 0, found 0 for both"
        case Daily() if shape.period_s > 2 * within_s:
            yield _of_period(shape.period_s, "half a period", lasts_s)
        case Sawtooth() if shape.period_s > within_s:
            yield _of_period(shape.period_s, "a period", lasts_s)


def _of_period(period_s: float, peak: str, lasts_s: float) -> str:
    return (
        f"shape.period_s: expected {peak} to fit into the run of {lasts_s:g} s, because the load "
        f"is highest at its end; found {period_s:g} s"
    )


def _before_end(at_s: float, scenario: Scenario) -> str | None:
    """What is wrong with a time; None if it is within the run."""
    if at_s < scenario.duration_s:
        return None
    return f"expected a time before the end of the run, {scenario.duration_s:g} s, found {at_s:g} s"


# ---- users and faults --------------------------------------------------------------------


def _of_users(scenario: Scenario) -> Iterator[str]:
    for index, users in enumerate(scenario.users):
        where = f"users[{index}]"
        topic = getattr(users, "topic", None)
        if topic is not None and topic not in scenario.topics:
            yield f"{where}.topic: {_no_topic(topic, scenario)}"
        elif isinstance(users, _WRITERS):
            yield from _of_records(where, users, scenario.topics[users.topic].partitions)
        if isinstance(users, CatchUpUsers):
            wrong = _before_end(users.starts_s, scenario)
            if wrong is not None:
                yield f"{where}.starts_s: {wrong}"


def _no_topic(topic: str, scenario: Scenario) -> str:
    known = ", ".join(scenario.topics) or "none"
    return (
        f"expected a topic of the scenario ({known}), found {shown(topic)}"
        f"{nearest(topic, scenario.topics)}"
    )


def _of_records(
    where: str, users: ProducerUsers | TransactionalUsers, partitions: int
) -> Iterator[str]:
    keys, size = users.keys, users.size
    if isinstance(keys, HotPartition) and keys.partition >= partitions:
        yield (
            f"{where}.keys.partition: expected a partition of {users.topic}, 0 to "
            f"{partitions - 1}, found {keys.partition}"
        )
    if isinstance(size, LognormalSize) and size.median > size.max:
        yield f"{where}.size.median: expected at most max, {size.max:,}, found {size.median:,}"


def _of_faults(scenario: Scenario) -> Iterator[str]:
    for index, fault in enumerate(scenario.faults):
        where = f"faults[{index}]"
        wrong = _before_end(fault.at_s, scenario)
        if wrong is not None:
            yield f"{where}.at_s: {wrong}"
        yield from (f"{where}.{wrong}" for wrong in _of_fault(fault, scenario))


def _of_fault(fault: Fault, scenario: Scenario) -> Iterator[str]:
    if fault.topic is not None:
        if fault.kind not in ("kill-leader", "pause-broker"):
            yield f"topic: not used by {fault.kind}"
        elif fault.topic not in scenario.topics:
            yield f"topic: {_no_topic(fault.topic, scenario)}"
    if fault.lasts_s is not None and fault.kind != "pause-broker":
        yield f"lasts_s: not used by {fault.kind}, only by pause-broker"
    coordinated = (GroupUsers, TransactionalUsers)
    if fault.kind == "kill-coordinator" and not _has(scenario, *coordinated):
        yield "kind: kill-coordinator needs users of kind group or transactional"


def _has(scenario: Scenario, *kinds: type[object]) -> bool:
    return any(isinstance(users, kinds) for users in scenario.users)


# ---- thresholds --------------------------------------------------------------------------


def _of_thresholds(scenario: Scenario) -> Iterator[str]:
    measured = list(dict.fromkeys(one for users in scenario.users for one in operations_of(users)))
    for index, threshold in enumerate(scenario.thresholds):
        where = f"thresholds[{index}]"
        if threshold.operation is not None:
            yield from (
                f"{where}.operation: {wrong}" for wrong in _of_operation(threshold, measured)
            )
        if threshold.lag_records is not None and not _has(scenario, GroupUsers):
            yield f"{where}.lag_records: needs users of kind group"
        if threshold.throughput_share is not None and not _has(scenario, *_WRITERS):
            yield f"{where}.throughput_share: needs users of kind producer or transactional"


def _of_operation(threshold: Threshold, measured: list[str]) -> Iterator[str]:
    operation = threshold.operation
    assert operation is not None, "the caller has seen it"
    if threshold.max_ms is None and threshold.errors_share is None:
        yield "used only with max_ms or errors_share"
    elif operation not in measured:
        kinds = [kind for kind, performed in BY_KIND.items() if operation in performed]
        why = f", which no user performs (users of kind {' or '.join(kinds)} do)" if kinds else ""
        yield (
            f"expected an operation that this scenario measures ({', '.join(measured)}), found "
            f"{shown(operation)}{why or nearest(operation, measured)}"
        )


# ---- settings of clients -----------------------------------------------------------------


def _of_clients(scenario: Scenario, given: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with entries' settings. All clients get the `given` ones as well."""
    for index, users in enumerate(scenario.users):
        where = f"users[{index}].client"
        own = [name for name in users.client if name.replace("_", ".") in _OWN_SETTINGS]
        if own:
            yield f"{where}: {own[0]}: {_OWN_SETTINGS[own[0].replace('_', '.')]}"
            continue
        try:
            _read(users, given)
        except InvalidSetting as refused:
            yield f"{where}: {refused}"


def _read(users: Users, given: Mapping[str, object]) -> None:
    """Parse settings as these users' clients do. Raises InvalidSetting."""
    settings: dict[str, object] = {"bootstrap.servers": NOBODY, **given}
    if isinstance(users, ConsumerUsers | GroupUsers | CatchUpUsers):
        settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    match users:
        case ProducerUsers():
            client_and_producer({**settings, **users.client}, {})
        case TransactionalUsers():
            client_and_producer({**settings, "transactional.id": "id", **users.client}, {})
        case CatchUpUsers():
            client_and_consumer({**settings, **users.client}, {})
        case ConsumerUsers():
            settings["isolation.level"] = users.isolation
            client_and_consumer({**settings, **users.client}, {})
        case GroupUsers():
            settings |= {"group.id": "group", "group.protocol": users.protocol}
            settings["isolation.level"] = "read_committed"
            client_and_consumer({**settings, **users.client}, {})
        case _:
            client_only({**settings, **users.client}, {})
