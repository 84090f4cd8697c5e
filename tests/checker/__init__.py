"""Records what real clients did to a log, and reports what no correct log can have shown them.

The model is Jepsen's Kafka workload: values are unique, so every polled record identifies the send
that wrote it. Histories come from `recorder` (any process, any client), from the simulation, or
from `model`. `python -m tests.checker FILE...` and `check.check` judge them. `lines` describes the
format. Producers are assumed to use acks=all and idempotence.

These kinds make a history invalid:

| kind | what was seen |
|---|---|
| lost-write | a record that was acknowledged, or read before, is missing in the final read: it is below the end of its partition, or above an end that was fetched after the acknowledgement |
| duplicate | one value at two offsets, whatever the outcome of its send |
| inconsistent-offset | two values at one offset, among acknowledgements and all readers |
| phantom | a value that nobody sent, or that was sent to another partition |
| nonmonotonic-send | two acknowledged records of a producer are in the wrong order |
| append-against-time | a record is before another one that was acknowledged before it was sent |
| nonmonotonic-poll | a consumer got a record below its position; the prefix internal- means within one poll |
| skipped-poll | a consumer skipped a record that some reader got; internal- as above |
| aborted-read | a record whose send failed, or (read committed) whose transaction was never committed |
| precommitted-read | a record of the reader's own open transaction, or one that was read before its commit was requested |
| G1c | a cycle of transactions that read from each other |

These kinds are reported but allowed: `unseen` (acknowledged, never polled, and nobody read to the
end), and, since Kafka does not isolate writes, cycles of write order: `G0`, and `G1c-ww`, which
needs write order in addition to reads. `Options.write_isolation` makes those two anomalies.

Not anomalies are: an unknown outcome, whether the record shows up or not; gaps left by control
records, aborted records, compaction (topics declared as compacted, records with keys) or retention
(below the start of a final read's span); jumps after an assignment, a seek or a rebalance, or in a
poll during which one came; records of other producers between two of a producer's, even in
transactions.

The fate of a transaction: committed if a commit was acknowledged, or if it may have been and
somebody read one of its records; never committed if every attempt to end it was an abort or a
failed commit; otherwise unknown, also if its end was not recorded.

A process name stands for one client: a consumer that is created again gets another name, or records
an assignment. Times must come from one machine's `time.monotonic_ns`. If they do not,
`Options.one_clock` disables comparisons between different processes.
"""  # noqa: E501 (a table)
