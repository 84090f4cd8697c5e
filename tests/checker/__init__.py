"""Records what real clients did to a log, and reports what no correct log can have shown them.

The model is Jepsen's workload for Kafka: values are unique, so that every record that a poll
returns names the send that wrote it. Histories come from `recorder` (any process, any client),
from the simulation, or from `model`; `python -m tests.checker FILE...` and `check.check` judge
them. `lines` has the format. Producers are taken to use acks=all and idempotence.

Kinds that make a history invalid:

| kind | what was seen |
|---|---|
| lost-write | a record that was acknowledged, or read before, is not among what the final read got: it is below the end of its partition, or above one that was asked for after the acknowledgement |
| duplicate | one value at two offsets, whatever its send's outcome |
| inconsistent-offset | two values at one offset, among acknowledgements and all readers |
| phantom | a value that nobody sent, or in another partition than it was sent to |
| nonmonotonic-send | of one producer's acknowledged records the later one stands first |
| append-against-time | a record sent after another was acknowledged stands before it |
| nonmonotonic-poll | a consumer got what lies behind its position; the prefix internal- says that it was within one poll |
| skipped-poll | a consumer went past a record that some reader had; internal- as above |
| aborted-read | a record whose send failed, or (read committed) whose transaction was never committed |
| precommitted-read | a record of the reader's own open transaction, or one got before its commit was asked for |
| G1c | a cycle of transactions that read from each other |

Kinds that are told and allowed: `unseen` (acknowledged, never polled, and nobody read to the end),
and, since Kafka does not isolate writes, cycles of write order: `G0`, and `G1c-ww`, which needs
write order besides reads. `Options.write_isolation` makes those two anomalies.

What is no anomaly: an unknown outcome that shows or does not show; gaps of control records,
aborted records, records that compaction replaced (topics declared so, records with keys) or
retention removed (below the start of a final read's span); jumps after an assignment, a seek or a
rebalance, or in a poll during which one came; records of other producers between two of a
producer's, in transactions as well.

A transaction's fate: committed if a commit was acknowledged, or if it may have been and somebody
read one of its records; never committed if every attempt to end it was an abort or a commit that
failed; unknown otherwise, also if nobody recorded its end.

A name of a process stands for one client: a consumer that is made anew gets another name, or
records an assignment. Times must be of one machine's `time.monotonic_ns`; where they are not,
`Options.one_clock` turns off what compares those of different processes.
"""  # noqa: E501 (a table)
