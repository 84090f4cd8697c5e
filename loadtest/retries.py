"""Effects of retries by producers without idempotence. Brokers are not to blame for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from raylog.client.setting_parsing import client_and_producer
from raylog.loadtest.local import Local
from raylog.loadtest.results import Finding
from raylog.loadtest.scenario import ProducerUsers
from raylog.loadtest.scenario_checks import NOBODY

_BY_RETRIES = ("doubled", "reordered")


def without_idempotence(names: Local) -> dict[str, list[str]]:
    """By topic of the run, the entries whose producers retry without idempotence."""
    found = defaultdict(list)
    for index, users in enumerate(names.scenario.users):
        if isinstance(users, ProducerUsers):
            settings = {"bootstrap.servers": NOBODY, **names.security, **users.client}
            _, own = client_and_producer(settings, {})
            if own.retries and not own.is_idempotent:
                found[names.topic(users.topic)].append(f"users[{index}]")
    return found


def divided(
    findings: Iterable[Finding], entries: Mapping[str, Iterable[str]]
) -> tuple[list[Finding], list[str]]:
    """Divide findings into wrong answers and notes on those explained by retries.

    `entries` are those that retry without idempotence, by topic.
    """
    wrong, notes = [], []
    for one in findings:
        if one.kind in _BY_RETRIES and one.topic in entries:
            notes.append(
                f"{one.count:,} records of {one.topic} are {one.kind}. This does not fail the run, "
                f"because {', '.join(entries[one.topic])} retries without enable.idempotence. The "
                f"first: {one.examples[0]}"
            )
        else:
            wrong.append(one)
    return wrong, notes
