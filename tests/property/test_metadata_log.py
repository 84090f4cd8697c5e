"""Any history of the metadata log with crashes: exactly what was synced is there."""

import errno
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Append, Promise, Truncate
from tests.worlds.storage.disk import FaultyDisk

DIRECTORY = Path("/data/metadata")
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("promise"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.integers(1, 4)),
    st.tuples(st.just("snapshot"), st.integers(0, 4)),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 1 << 30)),
    st.tuples(st.just("sync fails"), st.integers(0, 2)),
    st.tuples(st.just("snapshot fails"), st.integers(0, 3)),
)
FAULTS = {
    "sync fails": (("fdatasync", 0), ("fsync_dir", 0), ("fsync_dir", 1)),
    "snapshot fails": (("fdatasync", 0), ("fsync_dir", 0), ("fdatasync", 1), ("fsync_dir", 1)),
}
"""The calls that fail, each after a number of successful calls of its kind."""


class Model:
    """What was written to the log, and what of it is durable."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.promised = 0
        self.durable_records: list[bytes] = []
        self.durable_promised = 0
        self.histories: list[list[bytes]] = [[]]
        """Every state since the last sync: a crash may leave any of them."""

    def changed(self) -> None:
        self.histories.append(list(self.records))

    def synced(self) -> None:
        self.durable_records = list(self.records)
        self.durable_promised = self.promised
        self.histories = [list(self.records)]


def take_step(log: MetadataLog, model: Model, step: tuple[str, int], serial: int) -> None:
    kind, number = step
    match kind:
        case "append":
            records = tuple(b"%d.%d" % (serial, at) for at in range(number))
            log.write([Append((LogEntry(log.copy.next_offset, log.copy.promised_epoch, records),))])
            model.records.extend(records)
            model.changed()
        case "promise":
            log.write([Promise(log.copy.promised_epoch + number)])
            model.promised = log.copy.promised_epoch
        case "cut" if log.copy.entries:
            offset = log.copy.entries[max(0, len(log.copy.entries) - number)].offset
            log.write([Truncate(offset)])
            del model.records[offset:]
            model.changed()
        case "snapshot" if len(log.copy.entries) > number:
            snapshot = snapshot_of(log, model, number)
            log.finish_install(snapshot, log.prepare_install(snapshot))
            model.synced()
        case "sync":
            log.sync()
            model.synced()
        case _:
            pass


def snapshot_of(log: MetadataLog, model: Model, left: int) -> LogSnapshot:
    """A snapshot of everything except the last `left` entries."""
    offset = log.copy.entries[len(log.copy.entries) - 1 - left].next_offset
    epoch = log.copy.epoch_before(offset)
    assert epoch is not None
    return LogSnapshot(offset, epoch, tuple(model.records[:offset]))


def fails(disk: FaultyDisk, log: MetadataLog, model: Model, step: tuple[str, int]) -> bool:
    """Whether something could not be made durable, after which the voter is broken."""
    kind, number = step
    call, skip = FAULTS[kind][number]
    disk.fail(call, errno.EIO, skip=skip)
    try:
        if kind == "sync fails":
            log.sync()
            model.synced()
        elif log.copy.entries:
            log.prepare_install(snapshot_of(log, model, 0))
    except OSError:
        return True
    disk.heal()
    return False


def found_again(disk: FaultyDisk, model: Model) -> MetadataLog:
    """Reopen a log that may have lost what was not synced. The model follows it."""
    log = MetadataLog(DIRECTORY, disk)
    found = log.copy.records()
    assert any(found == history[: len(found)] for history in model.histories)
    assert log.copy.promised_epoch >= model.durable_promised
    if len(model.histories) == 1:
        assert found == model.durable_records
    model.records, model.promised = found, log.copy.promised_epoch
    log.sync()
    model.synced()
    return log


@given(st.lists(STEPS, max_size=30))
def test_synced_entries_are_kept_and_no_others_appear(steps: list[tuple[str, int]]) -> None:
    disk, model = FaultyDisk(), Model()
    log = MetadataLog(DIRECTORY, disk)
    log.sync()
    for serial, step in enumerate(steps):
        if step[0] == "kill":
            disk.kill()
            log = MetadataLog(DIRECTORY, disk)
            assert log.copy.records() == model.records
            assert log.copy.promised_epoch == model.promised
            log.sync()
            model.synced()
        elif step[0] == "crash":
            disk.crash(random.Random(step[1]))
            log = found_again(disk, model)
        elif step[0] in FAULTS:
            if fails(disk, log, model, step):
                disk.kill()
                log = found_again(disk, model)  # memory may have let go of it
        else:
            take_step(log, model, step, serial)
            assert log.copy.records() == model.records
