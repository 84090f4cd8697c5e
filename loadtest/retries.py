"""Effects of retries by producers without idempotence. Brokers are not to blame for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.client.setting_parsing import client_and_producer
from raylog.loadtest.results import Finding
from raylog.loadtest.scenario import ProducerUsers, Scenario
from raylog.loadtest.scenario_checks import NOBODY

_BY_RETRIES = ("doubled", "reordered")


def without_idempotence(scenario: Scenario, given: Mapping[str, object]) -> list[str]:
    """The entries whose producers retry without idempotence. All clients are `given` settings."""
    found = []
    for index, users in enumerate(scenario.users):
        if isinstance(users, ProducerUsers):
            settings = {"bootstrap.servers": NOBODY, **given, **users.client}
            _, own = client_and_producer(settings, {})
            if own.retries and not own.is_idempotent:
                found.append(f"users[{index}]")
    return found


def divided(findings: Iterable[Finding], entries: Iterable[str]) -> tuple[list[Finding], list[str]]:
    """Divide findings into wrong answers and notes on those explained by retries of `entries`."""
    names = ", ".join(entries)
    wrong, notes = [], []
    for one in findings:
        if names and one.kind in _BY_RETRIES:
            notes.append(
                f"{one.count:,} records are {one.kind}. This does not fail the run, because "
                f"{names} retries without enable.idempotence. The first: {one.examples[0]}"
            )
        else:
            wrong.append(one)
    return wrong, notes
