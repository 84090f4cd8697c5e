"""The text and tables of a run's report."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.loadtest.report import words
from raylog.loadtest.report.charts import MARKS_MAX
from raylog.loadtest.report.markup import Html, el, facts, joined, table
from raylog.loadtest.report.series import NAMES, Totals
from raylog.loadtest.results import Result
from raylog.loadtest.scenario import Users

_ERRORS_MAX = 100
_MB = 1_000_000
_MS_COLUMNS = [f"{name}, ms#" for name in NAMES]


def verdict(result: Result) -> Html:
    """Whether the run passed and why, and the answer to the scenario's question."""
    passed = result.passed
    return el(
        "section",
        el("p", el("b", "✔ Passed" if passed else "✘ Failed"), class_="verdict"),
        el("ul", [el("li", reason) for reason in words.reasons(result)]),
        el("p", el("i", result.scenario.question)),
        [el("p", answer) for answer in words.answers(result)],
        class_="passed" if passed else "failed",
    )


def what_was_run(result: Result) -> Html:
    """Scenario, target, machine and generator."""
    scenario, target = result.scenario, result.target
    brokers = "1 broker" if target.brokers == 1 else f"{target.brokers} brokers"
    time = (
        f"{words.moment(result.started)}, {words.seconds(result.duration_s)}, of which the first "
        f"{words.seconds(scenario.warmup_s)} are the warm-up"
    )
    found = [
        ("Target", f"{target.kind}, {brokers}, {target.bootstrap}"),
        ("Load made by", result.machine),
        ("Raylog", result.raylog),
        ("Time", time),
        ("Users", "\n".join(user_text(each) for each in scenario.users)),
        ("Topics", "\n".join(_topic_texts(result))),
        ("Load", _shape_text(result)),
        ("Generator", _generator_text(result)),
        ("Run", result.run),
    ]
    fields = el("pre", scenario.model_dump_json(indent=2, exclude_defaults=True))
    return joined([facts(found), el("details", el("summary", "Scenario, all fields"), fields)])


def _generator_text(result: Result) -> str:
    cost = words.cost(result)
    count = len(result.generators)
    return (
        f"{count} {'process' if count == 1 else 'processes'}: {cost.requests_per_cpu_s:,.0f} "
        f"requests per CPU-second; the busiest took up to {words.percent(cost.busiest)} of a core; "
        f"users woke up late by {words.number(cost.late_p99_ms)} ms (p99), "
        f"{words.number(cost.late_max_ms)} ms at most. "
        + (words.generator_limit(result) or "It was never the limit.")
    )


def user_text(users: Users) -> str:
    """An entry of the scenario's users in one line."""
    found = users.model_dump(exclude_defaults=True)
    found.pop("kind")
    count = found.pop("count", 1)
    settings = ", ".join(f"{key} {words.value(value)}" for key, value in found.items())
    return f"{count} × {users.kind}" + (f": {settings}" if settings else "")


def _topic_texts(result: Result) -> list[str]:
    return [
        f"{name}: " + ", ".join(f"{key} {words.value(value)}" for key, value in found.items())
        for name, topic in result.scenario.topics.items()
        if (found := topic.model_dump(exclude_none=True, exclude={"settings"}) | topic.settings)
    ]


def _shape_text(result: Result) -> str:
    found = result.scenario.shape.model_dump()
    kind = str(found.pop("kind"))
    values_text = ", ".join(f"{key} {words.value(value)}" for key, value in found.items())
    return f"{kind} ({values_text})" if values_text else kind


def operations(found: Sequence[Totals]) -> Html:
    """The table of operations."""
    return table(
        ["operation", "requests#", "per s#", "MB/s#", *_MS_COLUMNS, "failed#", "share#"],
        [
            [
                each.name,
                f"{each.requests:,}",
                words.number(each.rate),
                words.number(each.bytes / each.seconds / _MB) if each.bytes else "-",
                *(words.number(value) for value in each.percentiles_ms),
                f"{each.failures:,}",
                words.share(each.failed_share),
            ]
            for each in found
        ],
    )


def thresholds(result: Result) -> Html:
    """Each threshold and whether it held."""
    if not result.verdicts:
        return el("p", "The scenario has none.")
    return table(
        ["threshold", "found#", "held"],
        [
            [
                words.limit_text(one.threshold),
                words.found_text(one),
                "✔ yes" if one.held else "✘ no",
            ]
            for one in result.verdicts
        ],
    )


def audit(result: Result) -> Html:
    """The acknowledged records compared with the log."""
    found = result.audit
    text = (
        f"{found.acknowledged:,} records were acknowledged; {found.found:,} records of the run "
        "were found in the log."
    )
    if found.unanswered:
        text += f" {found.unanswered:,} were never answered: they may be in the log or not."
    if not found.findings:
        return el("p", f"{text} No errors were found.")
    return joined(
        [
            el("p", text),
            [
                joined(
                    [
                        el("h4", words.finding_text(finding)),
                        el("ul", [el("li", el("code", each)) for each in finding.examples]),
                    ]
                )
                for finding in found.findings
            ],
        ]
    )


def errors(result: Result) -> Html:
    """Errors by text, the most frequent first."""
    found = sorted(
        (
            (count, operation.name, text)
            for operation in result.operations
            for text, count in operation.errors.items()
        ),
        key=lambda one: -one[0],
    )
    if not found:
        return el("p", "There were none.")
    left_out = len(found) - _ERRORS_MAX
    return joined(
        [
            table(
                ["operation", "error", "times#"],
                [[name, text, f"{count:,}"] for count, name, text in found[:_ERRORS_MAX]],
            ),
            el("p", f"{left_out} rarer ones are not shown.") if left_out > 0 else Html(""),
        ]
    )


def events(result: Result) -> Html:
    """Events over time. Their numbers are those in the charts."""
    if not result.marks:
        return Html("")
    shown = result.marks[:MARKS_MAX]
    left_out = len(result.marks) - len(shown)
    return joined(
        [
            el("h3", "Events"),
            table(
                ["", "at, s#", "kind", "what"],
                [
                    [str(number), f"{mark.at_s:,.1f}", mark.kind, mark.text]
                    for number, mark in enumerate(shown, start=1)
                ],
            ),
            el("p", f"{left_out} later ones are not shown.") if left_out > 0 else Html(""),
        ]
    )


def generators(result: Result) -> Html:
    """The processes that made the load."""
    return table(
        ["host", "process#", "cores#", "CPU, mean#", "CPU, max#", "clock off by, µs#"],
        [
            [
                one.host,
                str(one.worker),
                str(one.cores),
                words.percent(words.cores_used(one)),
                words.percent(max(one.cpu_share, default=0.0)),
                f"{one.clock_offset_us:,} ± {one.clock_uncertainty_us:,}",
            ]
            for one in result.generators
        ],
    )


def notes(result: Result) -> Html:
    """Further notes."""
    if not result.notes:
        return Html("")
    return joined([el("h3", "Notes"), el("ul", [el("li", note) for note in result.notes])])
