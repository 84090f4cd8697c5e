"""Mistakes in a scenario: found before a run, each described in one line in the file's terms."""

from __future__ import annotations

import tomllib

import pytest

from raylog.client import InvalidSetting
from raylog.loadtest.scenario import BadScenario, Scenario, checked
from raylog.loadtest.scenario_checks import check_clients, mistakes
from raylog.loadtest.shipped import all_shipped

TEXT = """
name = "mine"
question = "?"
duration_s = 60
[topics.orders]
[[users]]
kind = "producer"
topic = "orders"
rate = 100
"""
GROUP = '[[users]]\nkind = "group"\ntopic = "orders"\ngroup = "billing"\n'


def refusal(text: str) -> str:
    """What is told of a file."""
    with pytest.raises(BadScenario) as refused:
        checked(tomllib.loads(text), "mine.toml")
    return str(refused.value)


def test_shipped_scenarios_have_none() -> None:
    assert [mistakes(one) for one in all_shipped()] == [[] for _ in all_shipped()]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("rate = 100", 'rate = "fast"', 'users[0].rate: expected a number, found "fast"'),
        ("rate = 100", "rate = -1", "users[0].rate: expected a number above 0, found -1"),
        ("rate = 100", "rate = nan", "users[0].rate: expected a finite number, found nan"),
        ("rate = 100", "rate = 1\ncount = 0", "users[0].count: expected at least 1, found 0"),
        (
            "rate = 100",
            "rate = 1\ncount = 1000000",
            "users[0].count: expected at most 100,000, found 1000000",
        ),
        (
            "rate = 100",
            "rate = 1\nsize = { bytes = 1.5 }",
            "users[0].size.bytes: expected a whole number, found 1.5",
        ),
        (
            "rate = 100",
            "rate = 1\nsize = { byts = 50 }",
            "users[0].size.byts: unknown field; did you mean bytes?",
        ),
        ("rate = 100", "rate = 1\nsize = 100", "users[0].size: expected a table, found 100"),
        (
            "rate = 100",
            'rate = 1\nkeys = { distribution = "zip" }',
            "users[0].keys.distribution: expected one of none, uniform, zipf, hot-partition, found "
            '"zip"; did you mean zipf?',
        ),
        (
            "rate = 100",
            "rate = 1\ncolour = 3",
            "users[0].colour: unknown field: expected count, client, topic, rate, size, keys, kind",
        ),
        (
            '"producer"',
            '"producr"',
            "users[0].kind: expected one of producer, transactional, consumer, group, catch-up, "
            'admin, connection-churn, found "producr"; did you mean producer?',
        ),
        (
            'kind = "producer"',
            "",
            "users[0].kind: is missing: expected one of producer, transactional, consumer, group, "
            "catch-up, admin, connection-churn",
        ),
        ("[[users]]", "[users]", "users: expected a list, found a table: write [[users]] for each"),
        (
            "topics.orders",
            'topics."a b"',
            "topics.\"a b\": expected 1 to 200 of these characters: a-z, A-Z, 0-9, '.', '_', "
            "'-', found \"a b\"",
        ),
        (
            "[topics.orders]",
            "[topics.orders]\nsettings.retention.ms = 5",
            "topics.orders.settings.retention: expected text, found a table: write the name in "
            'quotes, "retention.ms"',
        ),
        (
            "rate = 100",
            "rate = 1\nclient.linger.ms = 5",
            "users[0].client.linger: expected text, a number, true or false, found a table: write "
            'the name in quotes, "linger.ms"',
        ),
        ('question = "?"', "", "question: is missing"),
        (
            'topic = "orders"',
            'topic = "order"',
            'users[0].topic: expected a topic of the scenario (orders), found "order"; did you '
            "mean orders?",
        ),
        (
            "rate = 100",
            'rate = 1\nkeys = { distribution = "hot-partition", partition = 6 }',
            "users[0].keys.partition: expected a partition of orders, 0 to 5, found 6",
        ),
        (
            "rate = 100",
            'rate = 1\nsize = { distribution = "lognormal", median = 300000 }',
            "users[0].size.median: expected at most max, 262,144, found 300,000",
        ),
        (
            "duration_s = 60",
            "duration_s = 60\nwarmup_s = 60",
            "warmup_s: expected less than duration_s, 60, found 60",
        ),
    ],
)
def test_a_mistake_in_users_and_topics(old: str, new: str, expected: str) -> None:
    assert refusal(TEXT.replace(old, new, 1)) == f"mine.toml: {expected}"


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        (
            '[shape]\nkind = "spik"',
            "shape.kind: expected one of steady, ramp, stairs, spike, daily, sawtooth, found "
            '"spik"; did you mean spike?',
        ),
        (
            '[shape]\nkind = "spike"\nat_s = 55\nlasts_s = 10\nfactor = 2',
            "shape: expected a spike that ends within the run of 60 s, found one from 55 s to 65 s "
            "(at_s + lasts_s)",
        ),
        (
            '[shape]\nkind = "stairs"\nhold_s = 3.9',
            "shape.hold_s: expected 4 s or more, or no whole second of a step is judged, found "
            "3.9 s",
        ),
        (
            '[shape]\nkind = "stairs"\nhold_s = 56',
            "shape.hold_s: expected a step to fit into the 55 s after the warm-up, found 56 s",
        ),
        (
            '[shape]\nkind = "sawtooth"\nperiod_s = 61',
            "shape.period_s: expected a period to fit into the run of 60 s, because the "
            "load is highest at its end; found 61 s",
        ),
        (
            '[shape]\nkind = "daily"',
            "shape.period_s: expected half a period to fit into the run of 60 s, because the "
            "load is highest at its end; found 600 s",
        ),
        (
            '[shape]\nkind = "ramp"\nend = 0',
            "shape: expected a ramp with start or end above 0, found 0 for both",
        ),
        (
            '[[faults]]\nkind = "roll"\nat_s = 60',
            "faults[0].at_s: expected a time before the end of the run, 60 s, found 60 s",
        ),
        (
            '[[faults]]\nkind = "roll"\nat_s = 1\nlasts_s = 5',
            "faults[0].lasts_s: not used by roll, only by pause-broker",
        ),
        (
            '[[faults]]\nkind = "kill-leader"\nat_s = 1\ntopic = "other"',
            'faults[0].topic: expected a topic of the scenario (orders), found "other"',
        ),
        (
            '[[faults]]\nkind = "kill-coordinator"\nat_s = 1',
            "faults[0].kind: kill-coordinator needs users of kind group or transactional",
        ),
        (
            '[[users]]\nkind = "catch-up"\ntopic = "orders"\nstarts_s = 70',
            "users[1].starts_s: expected a time before the end of the run, 60 s, found 70 s",
        ),
    ],
)
def test_a_mistake_in_shapes_and_faults(added: str, expected: str) -> None:
    assert refusal(TEXT + added) == f"mine.toml: {expected}"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            'operation = "prduce"\nerrors_share = 0.1',
            "operation: expected an operation that this scenario measures (produce), found "
            '"prduce"; did you mean produce?',
        ),
        (
            'operation = "commit"\nerrors_share = 0.1',
            "operation: expected an operation that this scenario measures (produce), found "
            '"commit", which no user performs (users of kind group do)',
        ),
        (
            'operation = "produce"\npercentile = "p95_ms"\nmax_ms = 1',
            "percentile: expected one of p50_ms, p90_ms, p99_ms, p99.9_ms, max_ms, found "
            '"p95_ms"; did you mean p99_ms?',
        ),
        ("lag_records = 5", "lag_records: needs users of kind group"),
        (
            'operation = "produce"\nthroughput_share = 0.9',
            "operation: used only with max_ms or errors_share",
        ),
    ],
)
def test_a_mistake_in_thresholds(fields: str, expected: str) -> None:
    assert refusal(f"{TEXT}[[thresholds]]\n{fields}") == f"mine.toml: thresholds[0].{expected}"


def test_transactions_that_are_never_aborted_are_not_measured() -> None:
    users = TEXT.replace('"producer"', '"transactional"') + "aborted = 0\n"
    limit = '[[thresholds]]\noperation = "{}"\nerrors_share = 0'
    checked(tomllib.loads(users + limit.format("transaction")), "mine.toml")
    assert "measures (produce, transaction)" in refusal(users + limit.format("abort"))


def test_several_mistakes_have_a_line_each() -> None:
    errors = refusal(TEXT.replace("rate", "rte").replace("duration_s = 60", "duration_s = '1 min'"))
    assert errors.splitlines() == [
        "mine.toml: 3 mistakes",
        '  duration_s: expected a number, found "1 min"',
        "  users[0].rate: is missing",
        "  users[0].rte: unknown field; did you mean rate?",
    ]


@pytest.mark.parametrize(
    ("users", "client", "expected"),
    [
        ("", "linger = 5", "unknown setting 'linger': the nearest is 'linger.ms'"),
        ("", "acks = 7", "acks: expected 'all' or '-1' or '1' or '0', found 7"),
        ("", '"group.id" = "g"', "group.id: the load test sets it: use the field group of kind g"),
        ("", '"bootstrap.servers" = "a:1"', "bootstrap.servers: give the brokers on the command"),
        (GROUP, '"linger.ms" = 5', "linger.ms is a setting of producers, not of this client"),
        (GROUP, "auto_offset_reset = 'latest'", "auto.offset.reset was given twice"),
    ],
)
def test_settings_of_clients_are_those_of_their_kind(
    users: str, client: str, expected: str
) -> None:
    index = 1 if users else 0
    found = refusal(f"{TEXT}{users}client = {{ {client} }}\n")
    assert found.startswith(f"mine.toml: users[{index}].client: {expected}")


def test_settings_of_all_clients_are_checked_with_those_of_users() -> None:
    scenario = Scenario.model_validate(tomllib.loads(TEXT + 'client."retry.backoff.ms" = 500\n'))
    check_clients(scenario, {"client.id": "load"})
    with pytest.raises(InvalidSetting, match="unknown setting 'foo'"):
        check_clients(scenario, {"foo": "bar"})
    with pytest.raises(BadScenario, match=r"mine: users\[0\].client: expected retry.backoff.ms of"):
        check_clients(scenario, {"retry.backoff.max.ms": "100"})
