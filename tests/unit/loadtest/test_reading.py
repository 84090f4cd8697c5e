"""What reading users check: whole values of this run, in order."""

from __future__ import annotations

from raylog.client import ConsumedRecords, Record, TopicPartition
from raylog.loadtest.findings import Findings, seen_by_both
from raylog.loadtest.reading import Order, examine
from raylog.loadtest.records import encode, run_number
from raylog.loadtest.results import Finding

RUN = run_number("run")


def fetched(*values: bytes | None, first: int = 0) -> ConsumedRecords:
    records = [Record(offset, 0, None, value, ()) for offset, value in enumerate(values, first)]
    return ConsumedRecords("t", 0, records, first + len(records))


def value(sequence: int, sender: int = 1, run: int = RUN) -> bytes:
    return encode(run, sender, sequence, 5, 64)


def counts(findings: Findings) -> dict[str, int]:
    return {one.kind: one.count for one in findings.result()}


def test_good_records_become_columns() -> None:
    findings = Findings()
    seen = examine(fetched(value(3), value(4, sender=2), first=10), RUN, findings)
    assert seen.offsets.tolist() == [10, 11]
    assert seen.senders.tolist() == [1, 2]
    assert seen.sequences.tolist() == [3, 4]
    assert seen.intended_us.tolist() == [5, 5]
    assert seen.bytes == 128
    assert findings.result() == []


def test_torn_and_foreign_records_are_reported_and_left_out() -> None:
    findings = Findings()
    torn = value(1)[:-1]
    foreign = value(2, run=run_number("another"))
    seen = examine(fetched(value(0), torn, None, foreign, value(3), first=7), RUN, findings)
    assert seen.offsets.tolist() == [7, 11]
    assert counts(findings) == {"torn": 2, "unknown": 1}
    assert (
        "t-0: the checksum of the record at offset 8 (63 bytes)" in findings.result()[0].examples[0]
    )
    assert "offset 10 is of another run" in findings.result()[1].examples[0]
    assert examine(fetched(None), RUN, Findings()).offsets.tolist() == []


def follow(*batches: ConsumedRecords) -> dict[str, int]:
    findings = Findings()
    order = Order(TopicPartition("t", 0), findings)
    for batch in batches:
        order.follow(examine(batch, RUN, findings))
    return counts(findings)


def test_senders_are_followed_by_themselves() -> None:
    assert follow(fetched(value(0), value(0, 2), value(1)), fetched(value(4), first=8)) == {}


def test_doubled_and_reordered_records_are_counted() -> None:
    one = fetched(value(0), value(1), value(2))
    assert follow(one, fetched(value(2), first=3)) == {"doubled": 1}
    assert follow(one, fetched(value(1), first=3)) == {"reordered": 1}
    assert follow(fetched(value(0), value(2), value(1))) == {"reordered": 1}


def test_offsets_that_do_not_go_up() -> None:
    one = fetched(value(0), value(1), first=5)
    assert follow(one, fetched(value(2), first=6)) == {"wrong-offset": 1}
    assert follow(one, fetched(value(2), first=9)) == {}


def test_findings_keep_few_examples_and_all_counts() -> None:
    findings = Findings()
    for number in range(30):
        findings.add("lost", TopicPartition("t", 0), f"place {number}", 2)
    other = Findings(findings.take())
    assert findings.result() == []
    other.merge([Finding(kind="torn", topic="t", count=1, examples=["a"])])
    other.add("lost", TopicPartition("t", 1), "more")
    lost, torn = other.result()
    assert (lost.count, len(lost.examples), lost.examples[0]) == (61, 10, "t-0: place 0")
    assert torn.count == 1


def test_findings_of_audit_and_users_are_counted_once() -> None:
    both = seen_by_both(
        [Finding(kind="doubled", topic="t", count=3, examples=["a"])],
        [
            Finding(kind="torn", topic="t", count=1, examples=["c"]),
            Finding(kind="doubled", topic="u", count=4, examples=["d"]),
            Finding(kind="doubled", topic="t", count=5, examples=["b"]),
        ],
    )
    assert [(one.kind, one.topic, one.count, one.examples) for one in both] == [
        ("doubled", "t", 5, ["a", "b"]),
        ("doubled", "u", 4, ["d"]),
        ("torn", "t", 1, ["c"]),
    ]
