"""Combines all operations into knowledge about each partition and transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tests.checker.history import History, HistoryError
from tests.checker.operations import Action, End, Outcome, Partition, Poll, Send


class Fate(Enum):
    """The fate of a transaction."""

    COMMITTED = "committed"
    NEVER_COMMITTED = "never committed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Transaction:
    """One transaction."""

    fate: Fate = Fate.UNKNOWN
    began_ns: int | None = None
    commit_invoked_ns: int | None = None
    """Time of the first attempt. Before it nobody may see its records."""


@dataclass(slots=True)
class Log:
    """One partition according to polls and acknowledgements."""

    at: dict[int, str] = field(default_factory=dict)
    """By offset, the first value witnessed there."""
    offset_of: dict[str, int] = field(default_factory=dict)
    """By value, the first offset at which it was witnessed."""
    other_values: dict[int, set[str]] = field(default_factory=dict)
    """Offsets with several values: all but the first."""
    other_offsets: dict[str, set[int]] = field(default_factory=dict)
    """Values with several offsets: all but the first."""
    polled_committed: set[int] = field(default_factory=set)
    """Offsets whose records were read by readers of committed records."""
    polled_uncommitted: set[int] = field(default_factory=set)
    values_committed: set[str] = field(default_factory=set)
    values_uncommitted: set[str] = field(default_factory=set)
    sends: list[Send] = field(default_factory=list)
    """In the order of invocation."""
    newest_of_key: dict[str, int] = field(default_factory=dict)
    """For compacted topics: by key, the largest offset of a record that may be visible."""

    def witness(self, offset: int, value: str) -> None:
        """Record that a value is at an offset."""
        there = self.at.setdefault(offset, value)
        if there != value:
            self.other_values.setdefault(offset, set()).add(value)
        known = self.offset_of.setdefault(value, offset)
        if known != offset:
            self.other_offsets.setdefault(value, set()).add(offset)

    def was_polled(self, value: str) -> bool:
        """Whether anybody got a value."""
        return value in self.values_committed or value in self.values_uncommitted


@dataclass(slots=True)
class Cover:
    """What final reads say about one partition."""

    start: int
    end: int
    invoked_ns: int
    values: set[str] = field(default_factory=set)
    """Everything that the final read's processes ever polled from the partition."""


@dataclass(slots=True)
class Index:
    """The history by partition, value and transaction."""

    history: History
    logs: dict[Partition, Log] = field(default_factory=dict)
    writer: dict[str, Send] = field(default_factory=dict)
    """By value, its send."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    covers: dict[Partition, Cover] = field(default_factory=dict)
    never_visible: set[str] = field(default_factory=set)
    """Values of transactions that were never committed."""
    never_written: set[str] = field(default_factory=set)
    """Values whose send certainly failed."""

    @classmethod
    def of(cls, history: History) -> Index:
        """Index a history. Raises HistoryError if a value was sent twice."""
        index = cls(history)
        index._take_transactions()
        index._take_covers()
        for send in history.sends:
            index._take_send(send)
        for poll in history.polls:
            index._take_poll(poll)
        index._prove_commits()
        index._find_newest_of_keys()
        return index

    def log(self, partition: Partition) -> Log:
        """The log of a partition, created at the first request."""
        log = self.logs.get(partition)
        if log is None:
            log = self.logs[partition] = Log()
        return log

    def is_superseded(self, send: Send, offset: int | None) -> bool:
        """Whether compaction may have removed a record."""
        if send.key is None or send.partition[0] not in self.history.compacted:
            return False
        newest = self.logs[send.partition].newest_of_key.get(send.key)
        return newest is not None and (offset is None or newest > offset)

    def fate_of(self, send: Send) -> Fate:
        """The fate of a send's transaction. Without one it is committed."""
        if send.transaction is None:
            return Fate.COMMITTED
        transaction = self.transactions.get(send.transaction)
        return Fate.UNKNOWN if transaction is None else transaction.fate

    def _take_transactions(self) -> None:
        for begin in self.history.begins:
            self.transactions[begin.transaction] = Transaction(began_ns=begin.at_ns)
        attempts: dict[str, list[End]] = {}
        for end in self.history.ends:
            attempts.setdefault(end.transaction, []).append(end)
        for name, ends in attempts.items():
            transaction = self.transactions.setdefault(name, Transaction())
            commits = [end for end in ends if end.action is Action.COMMIT]
            transaction.commit_invoked_ns = min((end.invoked_ns for end in commits), default=None)
            outcomes = {end.outcome for end in commits}
            if Outcome.OK in outcomes:
                transaction.fate = Fate.COMMITTED
            elif Outcome.UNKNOWN not in outcomes:
                transaction.fate = Fate.NEVER_COMMITTED

    def _take_covers(self) -> None:
        for final in self.history.finals:
            for partition, start, end in final.spans:
                cover = self.covers.setdefault(partition, Cover(start, end, final.invoked_ns))
                cover.start = max(cover.start, start)
                cover.end = max(cover.end, end)
                cover.invoked_ns = max(cover.invoked_ns, final.invoked_ns)
        for process in {final.process for final in self.history.finals}:
            for operation in self.history.reads.get(process, ()):
                if isinstance(operation, Poll):
                    for partition, _, values in operation.batches:
                        if partition in self.covers:
                            self.covers[partition].values.update(values)

    def _take_send(self, send: Send) -> None:
        if self.writer.setdefault(send.value, send) is not send:
            raise HistoryError(
                f"expected every value to be sent once, found {send.value!r} sent by "
                f"{self.writer[send.value].process} and by {send.process}"
            )
        log = self.log(send.partition)
        log.sends.append(send)
        if send.offset is not None:
            log.witness(send.offset, send.value)
        if send.outcome is Outcome.FAILED:
            self.never_written.add(send.value)
        elif self.fate_of(send) is Fate.NEVER_COMMITTED:
            self.never_visible.add(send.value)

    def _take_poll(self, poll: Poll) -> None:
        for partition, offsets, values in poll.batches:
            log = self.log(partition)
            at, offset_of = log.at, log.offset_of
            for offset, value in zip(offsets, values, strict=True):
                # Most records are known already, and calling `witness` for each would be slow.
                if at.get(offset) != value or offset_of.get(value) != offset:
                    log.witness(offset, value)
            if poll.read_committed:
                log.polled_committed.update(offsets)
                log.values_committed.update(values)
            else:
                log.polled_uncommitted.update(offsets)
                log.values_uncommitted.update(values)

    def _prove_commits(self) -> None:
        """Mark transactions as committed if read_committed returned one of their records."""
        for log in self.logs.values():
            for send in log.sends:
                name = send.transaction
                if name is not None and send.value in log.values_committed:
                    transaction = self.transactions.setdefault(name, Transaction())
                    if transaction.fate is Fate.UNKNOWN:
                        transaction.fate = Fate.COMMITTED

    def _find_newest_of_keys(self) -> None:
        for partition, log in self.logs.items():
            if partition[0] not in self.history.compacted:
                continue
            for send in log.sends:
                if send.key is None or self.fate_of(send) is Fate.NEVER_COMMITTED:
                    continue
                offset = log.offset_of.get(send.value)
                if offset is not None and offset > log.newest_of_key.get(send.key, -1):
                    log.newest_of_key[send.key] = offset
