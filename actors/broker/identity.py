"""A broker's data directory: its identity, its lock, and what the last process recorded.

| path           | contents                                                                  |
|----------------|---------------------------------------------------------------------------|
| `meta.json`    | cluster id, broker id, directory id, metadata voters; synced               |
| `meta.copy.json` | a copy of `meta.json`, in case that is lost                              |
| `state.json`   | the last process: broker epoch, boot id, children, how it ended; and       |
|                | which processes asked for a broker epoch without recording one             |
| `followed.json`| which metadata was followed, and up to which offset; synced                |
| `wanted.json`  | where the cluster's brokers should run, according to the metadata; synced  |
| `.lock`        | locked by the process that has the directory open                          |
| `metadata/`    | the metadata log, if this broker is a voter                                |
| `topics/`      | one directory for each partition replica                                   |
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from raylog.actors.broker.empty_logs import mark_empty_logs
from raylog.actors.broker.lost_identity import advice
from raylog.actors.broker.messages import StrayStatus
from raylog.actors.broker.rules.directories import is_partition, is_stray
from raylog.actors.broker.strays import strays_in
from raylog.actors.endpoints import DEFAULT_LISTENER
from raylog.actors.metadata.followed import DirectoryHistory, Followed
from raylog.storage.checkpoint import read_file, write_file
from raylog.storage.disk import OsDisk, Volume, make_durably, sync_names_anew
from raylog.wire.errors import (
    InconsistentClusterId,
    InvalidConfig,
    KafkaStorageError,
    LogDirNotFound,
)

T = TypeVar("T")
log = logging.getLogger(__name__)
FORMAT_VERSION = 1
FOLLOWED_VERSION = 2
_FOLLOWED = "followed.json"
WANTED_FILE = "wanted.json"
"""Where the cluster's brokers should run (`supervisor.rules.desired`)."""
_META, _META_COPY = "meta.json", "meta.copy.json"
_EXAMPLE = {
    "version": FORMAT_VERSION,
    "cluster_id": "4L6g3nShT-eMCtK--X86sw",
    "broker_id": 3,
    "directory_id": "IXQ3wbqbTVqsDq1cQlXrUA",
    "voters": [[0, "vf0dZGnZQGi9Gk3uB7xP1g"]],
}
ASKING_MAX = 16
"""Limit for processes recorded as having asked; beyond it, the oldest are forgotten."""
_OS_DISK = OsDisk()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a data directory, which binds it permanently to a broker."""

    cluster_id: str
    broker_id: int
    directory_id: str
    voters: tuple[tuple[int, str], ...] = ()
    """(broker id, directory id) of the metadata voters, as last known to be committed."""

    @property
    def is_voter(self) -> bool:
        """Whether this directory held a voting copy of the metadata log, as last known."""
        return (self.broker_id, self.directory_id) in self.voters


@dataclass(frozen=True, slots=True)
class LastProcess:
    """What the last broker process left in a directory."""

    broker_epoch: int = -1
    boot_id: str = ""
    """The kernel's boot id when the broker epoch was assigned."""
    clean: bool = False
    """Whether it shut down cleanly."""
    starts: int = 0
    """Process starts since the last clean shutdown."""
    next_child: int = 0
    """Lowest number not yet used for a child."""
    ports: dict[str, int] = field(default_factory=dict)
    """Listening ports, by listener."""
    children: dict[str, str] = field(default_factory=dict)
    """Builds that the children run, by child name. Empty for those that were told to stop: they may
    live, but serve nobody."""
    asking: tuple[str, ...] = ()
    """Incarnations of processes that had lost nothing and asked for a broker epoch after this one
    was recorded. If the controller knows one of them, it came from this directory."""
    marked: bool = False
    """Whether the empty logs of older builds are marked. An older build drops this at its start."""


class Expected(NamedTuple):
    """The data directory that the cluster expects of this broker."""

    directory_id: str = ""
    """If empty, a new directory may be formatted."""
    replaced: tuple[str, ...] = ()
    """Directories that were given up and are never accepted again."""


ANY_DIRECTORY = Expected()


class Past(NamedTuple):
    """Earlier processes as reported by a registration: fields of `RegisterBroker`."""

    previous_broker_epoch: int
    kept_running: bool
    clean_shutdown: bool
    unanswered: tuple[str, ...] = ()


def _require_expected(
    found: Identity | None, expected: Expected, path: Path, broker_id: int
) -> None:
    """Raise KafkaStorageError if the directory is not the one that the cluster knows.

    Raises LogDirNotFound if there is none.
    """
    has = "an empty directory" if found is None else f"the directory {found.directory_id}"
    if found is not None and found.directory_id in expected.replaced:
        raise KafkaStorageError(
            f"{path} is {has} of broker {broker_id}, which was replaced: its records are old. "
            f"Move it out of the way"
        )
    if expected.directory_id and (found is None or found.directory_id != expected.directory_id):
        refused = LogDirNotFound if found is None else KafkaStorageError
        raise refused(
            f"{path} is {has}, expected is the directory {expected.directory_id} of broker "
            f"{broker_id}. Is its disk mounted? If it is lost: raylog brokers replace {broker_id}"
        )


class DirectoryInUse(KafkaStorageError):
    """Another process has locked the data directory."""


class IdentityDamaged(KafkaStorageError):
    """The identity file exists but cannot be read."""


def read_identity(directory: Path, disk: Volume = _OS_DISK) -> Identity | None:
    """Read the identity of a directory; None if it is not formatted.

    If `meta.json` is lost or damaged, its copy is read. Raises IdentityDamaged if the copy is
    unusable too, and KafkaStorageError for the format of a newer build.
    """
    try:
        found = _identity_in(directory / _META, disk)
    except IdentityDamaged:
        copy = _undamaged(directory / _META_COPY, disk)
        if copy is None:
            raise
        return copy
    return _undamaged(directory / _META_COPY, disk) if found is None else found


def _undamaged(path: Path, disk: Volume) -> Identity | None:
    try:
        return _identity_in(path, disk)
    except IdentityDamaged:
        return None


def _identity_in(path: Path, disk: Volume) -> Identity | None:
    contents = read_file(disk, str(path))
    if contents is None:
        return None
    try:
        values = json.loads(contents)
        version = _as(int, values["version"])
        if version > FORMAT_VERSION:
            raise KafkaStorageError(
                f"{path} has format {version}, this build knows {FORMAT_VERSION}. "
                "Use the build that wrote it, or a newer one"
            )
        return Identity(
            cluster_id=_as(str, values["cluster_id"]),
            broker_id=_as(int, values["broker_id"]),
            directory_id=_as(str, values["directory_id"]),
            voters=tuple((_as(int, one), _as(str, name)) for one, name in values["voters"]),
        )
    except (ValueError, KeyError, TypeError) as broken:
        raise IdentityDamaged(
            f"{path} is damaged: it begins with {contents[:40]!r} ({broken}), expected is a JSON "
            "object with version, cluster_id, broker_id, directory_id and voters, as in "
            f"{json.dumps(_EXAMPLE)}. Restore the file or its copy {_META_COPY}. The other "
            "brokers' files have the same cluster_id and voters; a voter's directory_id is there. "
            "If you remove the damaged file the broker says what to write. Keep everything else in "
            "the directory: it may hold the only copy of records, or of the metadata"
        ) from broken


def _as(kind: type[T], value: object) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


class DataDirectory:
    """A data directory, locked by this process until `close`."""

    def __init__(
        self,
        path: Path,
        wanted: Identity,
        *,
        fsync: bool,
        disk: Volume = _OS_DISK,
        expected: Expected = ANY_DIRECTORY,
    ) -> None:
        """Lock the directory and format it as `wanted`, or check that it is the wanted broker's.

        `wanted.directory_id` and `wanted.voters` only matter for formatting. Nothing is changed if
        another directory is `expected`. Blocking.
        """
        self.path = path
        _require_expected(read_identity(path, disk), expected, path, wanted.broker_id)
        self._fsync = fsync
        self._disk = disk
        if fsync:
            make_durably(disk, str(path))
        else:
            disk.mkdir(str(path))
        self._lock = _locked(disk, path / ".lock")
        try:
            self.identity = self._checked(wanted)
            self.last = self._read_last()
            self.followed = self._read_followed()
            if fsync:  # the writer may have ended before they were durable
                sync_names_anew(disk, str(path))
        except BaseException:
            disk.close(self._lock)
            raise

    @property
    def topics(self) -> Path:
        """Parent of the partitions' directories."""
        return self.path / "topics"

    @property
    def metadata(self) -> Path:
        """The directory of the metadata log."""
        return self.path / "metadata"

    @property
    def has_metadata_log(self) -> bool:
        """Whether there is a copy of the metadata log, whether it votes or not."""
        return self.metadata.name in self._disk.listdir(str(self.path))

    def history(self) -> DirectoryHistory:
        """Return what this directory knows of its cluster. Blocking: it counts the partitions.

        Other entries of `topics/`, such as `lost+found` of a mounted volume, are ignored. Raises
        KafkaStorageError if it cannot be listed.
        """
        try:
            names = self._disk.listdir(str(self.topics))
        except OSError as failure:
            raise KafkaStorageError(f"{self.topics} cannot be listed: {failure}") from failure
        return DirectoryHistory(
            self.identity.broker_id,
            self.last.broker_epoch,
            self.followed,
            sum(map(_is_replica, names)),
        )

    def strays(self) -> list[StrayStatus]:
        """List the directories that were set aside as strays. Blocking."""
        return strays_in(self._disk, str(self.topics))

    def note_wanted(self, contents: bytes) -> None:
        """Record where the cluster's brokers should run. Blocking; raises OSError."""
        write_file(self._disk, str(self.path / WANTED_FILE), contents, durable=self._fsync)

    def note_followed(self, followed: Followed) -> None:
        """Record which metadata was followed, and how far. Blocking; raises OSError."""
        values = {"version": FOLLOWED_VERSION, **followed._asdict()}
        self._write(_FOLLOWED, values, durable=self._fsync)
        self.followed = followed

    def past(self) -> Past:
        """What is known of the last process, before this one records anything."""
        last = self.last
        return Past(last.broker_epoch, self.kept_running, last.clean, last.asking)

    @property
    def kept_running(self) -> bool:
        """Whether the kernel, with its page cache, has kept running since the last registration."""
        return bool(self.last.boot_id) and self.last.boot_id == self._disk.boot_id()

    def remember_voters(self, voters: tuple[tuple[int, str], ...]) -> None:
        """Record the voters of the metadata log. Blocking."""
        self._identify(replace(self.identity, voters=voters))

    def rename(self, directory_id: str) -> None:
        """Give the directory a new id, because it replaces a lost one. Blocking."""
        self._identify(replace(self.identity, directory_id=directory_id))

    def remember(self, last: LastProcess, *, durable: bool = False) -> None:
        """Record what the next process needs to know; raises OSError."""
        self.last = last
        self._write("state.json", asdict(last), durable=durable and self._fsync)

    @property
    def ports(self) -> dict[str, int]:
        """Last listening ports, by listener."""
        return self.last.ports

    def remember_port(self, listener: str, port: int) -> None:
        """Record the port of one listener; the others stay."""
        self.remember_ports({**self.last.ports, listener: port})

    def remember_ports(self, ports: dict[str, int]) -> None:
        """Record this process's listening ports."""
        self._remember_if_possible(replace(self.last, ports=ports))

    def _remember_if_possible(self, last: LastProcess, *, durable: bool = False) -> None:
        """Record something optional: without it, the next process assumes a crash."""
        try:
            self.remember(last, durable=durable)
        except OSError as failure:
            log.error("%s cannot be written: %s", self.path / "state.json", failure)

    def note_start(self) -> None:
        """Record that a process has started. On OSError nothing else may be started.

        The kernel is recorded only if nothing was lost since the last registration. So a crash
        stays known, however many processes end before one has registered. Blocking: the first
        process after an older build looks into every partition's directory.
        """
        if not self.last.marked:
            mark_empty_logs(self._disk, str(self.topics))
        nothing_lost = self.last.clean or self.kept_running
        boot_id = self._disk.boot_id() if nothing_lost else self.last.boot_id
        starts = self.last.starts + 1
        noted = replace(self.last, boot_id=boot_id, clean=False, starts=starts, marked=True)
        self.remember(noted)

    def note_end(self) -> None:
        """Record a clean shutdown of this process. Blocking.

        An earlier crash that no controller was told of still counts as a crash.
        """
        clean = replace(self.last, clean=self.kept_running, starts=0, children={})
        self._remember_if_possible(clean, durable=True)

    def note_asking(self, incarnation: str) -> None:
        """Record that this process is about to ask for a broker epoch; it may end meanwhile.

        A process that lost something records nothing: the next one must report that loss again.
        """
        if self.kept_running:
            asking = (*self.last.asking, incarnation)[-ASKING_MAX:]
            self._remember_if_possible(replace(self.last, asking=asking))

    def remember_epoch(self, broker_epoch: int) -> None:
        """Record the broker epoch of this process. The controller now knows what was lost."""
        last = replace(
            self.last, broker_epoch=broker_epoch, boot_id=self._disk.boot_id(), asking=()
        )
        self._remember_if_possible(last)

    def remember_children(self, children: dict[str, str]) -> None:
        """Record the children, so that the next process finds those that live.

        On OSError no child may be started, or two could have one log open after a crash.
        """
        numbers = [int(name.rpartition("/")[2]) + 1 for name in children]
        following = max([self.last.next_child, *numbers])
        self.remember(replace(self.last, next_child=following, children=children))

    def close(self) -> None:
        """Unlock the directory. May be called twice."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            self._disk.close(lock)

    def _checked(self, wanted: Identity) -> Identity:
        found = read_identity(self.path, self._disk)
        if found is None:
            self._require_blank(wanted)
            self._disk.mkdir(str(self.topics))
            self._identify(wanted)
            return wanted
        if found.cluster_id != wanted.cluster_id:
            raise InconsistentClusterId(
                f"{self.path} belongs to cluster {found.cluster_id}, not {wanted.cluster_id}"
            )
        if found.broker_id != wanted.broker_id:
            raise InvalidConfig(
                f"{self.path} belongs to broker {found.broker_id}, not {wanted.broker_id}"
            )
        self._disk.mkdir(str(self.topics))
        self._complete(found)
        return found

    def _complete(self, found: Identity) -> None:
        """Write an identity file that was lost, or that an older build did not write."""
        stated = {name: _undamaged(self.path / name, self._disk) for name in (_META, _META_COPY)}
        if stated[_META] != found:
            log.warning(
                "%s is damaged or missing, and is restored from %s", self.path / _META, _META_COPY
            )
        if any(identity != found for identity in stated.values()):
            self._identify(found)

    def _require_blank(self, wanted: Identity) -> None:
        """Refuse to format a directory that holds data of an unknown owner."""
        names = self._disk.listdir(str(self.path))
        holders = [one for one in (self.topics, self.metadata) if one.name in names]
        held = [one.name for one in holders if self._holds_data(one)]
        if held:
            raise KafkaStorageError(
                f"{self.path / _META} is missing, expected is that of broker "
                f"{wanted.broker_id} in cluster {wanted.cluster_id}: found is data in "
                f"{' and '.join(held)}. {advice(self.metadata, _values_of(wanted))}"
            )

    def _holds_data(self, directory: Path) -> bool:
        names = self._disk.listdir(str(directory))
        return any(_is_replica(one) or directory == self.metadata for one in names)

    def _identify(self, identity: Identity) -> None:
        for name in (_META_COPY, _META):  # so the copy is never older
            self._write(name, _values_of(identity), durable=self._fsync)
        self.identity = identity

    def _read_last(self) -> LastProcess:
        """Read the last process's record; the default if it is incomplete."""
        path = self.path / "state.json"
        contents = read_file(self._disk, str(path))
        if contents is None:
            return LastProcess()
        try:
            return _last_process(json.loads(contents))
        except (ValueError, TypeError, KeyError, AttributeError) as broken:
            log.warning("%s is damaged, the last process counts as crashed: %s", path, broken)
            return LastProcess()

    def _read_followed(self) -> Followed:
        """Read which metadata was followed; the default if the file is lost."""
        path = self.path / _FOLLOWED
        contents = read_file(self._disk, str(path))
        if contents is None:
            return Followed()
        try:
            values = json.loads(contents)
            version = _as(int, values["version"])
            if version > FOLLOWED_VERSION:
                raise KafkaStorageError(
                    f"{path} has format {version}, this build knows {FOLLOWED_VERSION}"
                )
            return Followed(
                _as(str, values["metadata_id"]),
                _as(int, values["epoch"]),
                _as(int, values["offset"]),
                _as(int, values["nonce"]) if version > 1 else 0,
            )
        except (ValueError, TypeError, KeyError) as broken:
            log.error("%s is damaged, older metadata cannot be told from it: %s", path, broken)
            return Followed()

    def _write(self, name: str, values: dict[str, Any], *, durable: bool) -> None:
        contents = json.dumps(values, indent=1).encode()
        write_file(self._disk, str(self.path / name), contents, durable=durable)


def _values_of(identity: Identity) -> dict[str, Any]:
    return {"version": FORMAT_VERSION, **asdict(identity)}


def _is_replica(name: str) -> bool:
    """Whether a name in `topics/` is that of a partition's directory or of a stray."""
    return is_partition(name) or is_stray(name)


def _last_process(values: Any) -> LastProcess:
    return LastProcess(
        broker_epoch=_as(int, values["broker_epoch"]),
        boot_id=_as(str, values["boot_id"]),
        clean=values["clean"] is True,
        starts=_as(int, values["starts"]),
        next_child=_as(int, values["next_child"]),
        ports=_ports_of(values),
        children={_as(str, k): _as(str, v) for k, v in values["children"].items()},
        asking=tuple(_as(str, one) for one in values.get("asking", ())),
        marked=values.get("marked") is True,
    )


def _ports_of(values: Any) -> dict[str, int]:
    """Read the ports; builds with a single listener recorded a single port."""
    if "ports" not in values:
        return {DEFAULT_LISTENER: _as(int, values["port"])}
    return {_as(str, name): _as(int, port) for name, port in values["ports"].items()}


def _locked(disk: Volume, path: Path) -> int:
    try:
        return disk.lock(str(path))
    except BlockingIOError:
        raise DirectoryInUse(f"{path.parent} is in use by another broker process") from None
