"""The exposition for Prometheus is well formed, whatever names clients choose."""

from __future__ import annotations

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from raylog.actors.metrics.exposition import LABEL_CHARACTERS_MAX, clean, exposition
from raylog.actors.metrics.families import gateway, process, replica
from raylog.actors.metrics.samples import Sample

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
WHERE = ("0", "gateway", "gateway-3")
SECONDS = len(process.LAG_SECONDS)
SAMPLES: list[Sample] = [
    (gateway.REQUESTS.name, (*WHERE, "Produce"), 7),
    (gateway.REQUESTS.name, (*WHERE, "Fetch"), 3),
    (gateway.CONNECTIONS.name, (*WHERE, "PLAINTEXT"), 2),
    (process.LOOP_LAG.name, WHERE, (2.25, 4, 1, *[0] * (SECONDS - 2), 1)),
]


def read(accept: str, samples: list[Sample]) -> dict[str, Metric]:
    answer = exposition(samples, accept)
    read_families = read_openmetrics if "openmetrics" in answer.content_type else read_text
    return {family.name: family for family in read_families(answer.body.decode())}


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", OPENMETRICS, "*/*", "a;b=;;,"])
def test_every_kind_of_family_comes_back_as_it_was_counted(accept: str) -> None:
    families = read(accept, SAMPLES)
    assert {family.type for family in families.values()} == {"counter", "gauge", "histogram"}
    requests = {one.labels["api"]: one.value for one in families["raylog_requests"].samples}
    assert requests == {"Produce": 7, "Fetch": 3}
    (connections,) = families[gateway.CONNECTIONS.name].samples
    assert connections.labels == {
        "broker": "0",
        "role": "gateway",
        "process": "gateway-3",
        "listener": "PLAINTEXT",
    }
    lag = {
        (one.name.removeprefix("raylog_event_loop_lag_seconds_"), one.labels.get("le")): one.value
        for one in families["raylog_event_loop_lag_seconds"].samples
    }
    assert [lag["bucket", bound] for bound in ("0.001", "0.002", "10.0", "+Inf")] == [4, 5, 5, 6]
    assert (lag["count", None], lag["sum", None]) == (6, 2.25)


def test_openmetrics_is_sent_only_to_who_accepts_it() -> None:
    assert "openmetrics" in exposition(SAMPLES, OPENMETRICS).content_type
    assert exposition(SAMPLES, "").content_type == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("version", ["abc", "", "1..0", "-1", "999999"])
def test_a_version_that_is_no_number_gets_an_answer(version: str) -> None:
    accept = f"application/openmetrics-text;version={version}"
    assert b"raylog_" in exposition(SAMPLES, accept).body


HOSTILE = [
    'a"b',
    "a\nb",
    "a\\nb",
    'x"} 1\nraylog_requests_total{api="Forged',
    "\0\x7f\u2028\r",
    "\ud800",
    "ÿ漢",
    "",
    "n" * 249,
    "n" * 32_767,
]


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_names_of_clients_break_neither_format_and_stay_apart(accept: str) -> None:
    samples: list[Sample] = [
        (replica.BYTES_IN.name, ("0", "replica", "replica-1", name), number)
        for number, name in enumerate(HOSTILE)
    ]
    families = read(accept, samples)
    assert list(families) == ["raylog_topic_bytes_in"]
    values = {one.labels["topic"]: one.value for one in families["raylog_topic_bytes_in"].samples}
    assert values == {clean(name): number for number, name in enumerate(HOSTILE)}
    assert len(values) == len(HOSTILE)


def test_long_names_are_cut_and_distinguished_by_what_is_behind() -> None:
    cut = {clean("n" * 300 + tail) for tail in ("a", "b", "\ud800", "?")}
    assert len(cut) == 4
    assert {len(one) for one in cut} == {LABEL_CHARACTERS_MAX}
    assert clean("n" * LABEL_CHARACTERS_MAX) == "n" * LABEL_CHARACTERS_MAX
