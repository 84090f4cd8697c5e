"""Files and directories in memory that lose data at a power loss as a real disk does.

| call                  | what is durable after it                                                |
|-----------------------|-------------------------------------------------------------------------|
| a write               | nothing: any part may survive, in any order, torn, with a wrong bit     |
| `Inode.sync`          | the content of the file; not its name                                   |
| `Inode.fail_sync`     | nothing, but the pages count as clean: a later sync reports success     |
| a name changes        | nothing: the first changes of a directory may survive without the rest  |
| `Directory.sync`      | the names in the directory; its own name is in its parent               |
| `Directory.fail_sync` | nothing, and a later sync writes nothing unless a name has changed      |
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

TORN = 0.2
"""Probability that an unsynced write survives in part only."""
FLIPPED = 0.05
"""Probability that it then has a wrong bit."""
LOST = 0.3
EVICTED = 0.5
"""Probability that a file whose sync failed is read from the disk when it is opened again."""


@dataclass(slots=True, eq=False)
class Inode:
    """One file."""

    data: bytearray = field(default_factory=bytearray)
    """The content as processes see it."""
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes since the last sync: position and bytes, or a length and None."""
    written: int = 0
    """The end of all data ever written. Holes behind it take no space."""
    modified_ms: int = 0
    """The modification time, set by the writer."""
    users: int = 0
    """The number of open descriptors."""
    sync_failed: bool = False
    """Whether memory may hold data that the disk will never have."""

    def write(self, position: int, written: bytes) -> None:
        """Write to memory."""
        _write(self.data, position, written)
        self.written = max(self.written, position + len(written))
        self.unsynced.append((position, written))

    def resize(self, size: int) -> None:
        """Set the length."""
        _resize(self.data, size)
        self.written = min(self.written, size)
        self.unsynced.append((size, None))

    def sync(self) -> None:
        """Make the writes since the last sync durable."""
        for position, written in self.unsynced:
            if written is None:
                _resize(self.durable, position)
            else:
                _write(self.durable, position, written)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """Lose the writes since the last sync, although later syncs succeed."""
        self.sync_failed = True
        self.unsynced.clear()

    def evict(self) -> None:
        """Drop clean pages from memory: the content becomes what the disk has."""
        self.data = bytearray(self.durable)
        self.sync_failed = False
        for position, written in self.unsynced:
            if written is None:
                _resize(self.data, position)
            else:
                _write(self.data, position, written)

    def lose(self, random: Random) -> None:
        """Lose power: keep what is durable and any part of the rest."""
        data = self.durable
        for position, written in self.unsynced:
            fate = random.random()
            if fate < LOST:
                continue
            if written is None:
                _resize(data, position)
                continue
            kept = bytearray(written)
            if fate > 1 - TORN and kept:
                start = random.randint(0, len(kept))
                end = random.randint(start, len(kept))
                kept, position = kept[start:end], position + start
            if fate > 1 - FLIPPED and kept:
                kept[random.randrange(len(kept))] ^= 1 << random.randrange(8)
            _write(data, position, kept)
        self.unsynced.clear()
        self.data = bytearray(data)
        self.written = len(data)
        self.users, self.sync_failed = 0, False

    def close(self, random: Random) -> None:
        """Close a descriptor. After the last one memory may drop the pages."""
        self.users -= 1
        if not self.users and self.sync_failed and random.random() < EVICTED:
            self.evict()

    def copy(self) -> Inode:
        """Another file with the same content, all of it durable."""
        return Inode(
            bytearray(self.data),
            bytearray(self.data),
            written=self.written,
            modified_ms=self.modified_ms,
        )


@dataclass(slots=True, eq=False)
class Directory:
    """The names of files and directories, in the order of their creation."""

    names: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    changes: list[tuple[str, Inode | Directory | None]] = field(default_factory=list)
    """Changes since the last sync, in order; None removes a name."""
    sync_failed: bool = False
    """Whether the last sync failed and no name has changed since."""

    def put(self, name: str, one: Inode | Directory) -> None:
        """Give a file or directory a name. It replaces what had that name."""
        self.names[name] = one
        self.changes.append((name, one))
        self.sync_failed = False

    def drop(self, name: str) -> Inode | Directory:
        """Remove a name."""
        one = self.names.pop(name)
        self.changes.append((name, None))
        self.sync_failed = False
        return one

    def sync(self) -> None:
        """Make the names durable, unless a sync failed and none has changed since."""
        if not self.sync_failed:
            self.durable = dict(self.names)
            self.changes.clear()

    def fail_sync(self) -> None:
        """Lose the changes since the last sync, although the next sync reports success."""
        self.sync_failed = bool(self.changes)

    def lose(self, random: Random) -> None:
        """Lose power: keep what is durable and the first changes after it, here and below."""
        self.names, self.sync_failed = dict(self.durable), False
        for name, one in self.changes[: random.randint(0, len(self.changes))]:
            if one is None:
                self.names.pop(name, None)
            else:
                self.names[name] = one
        self.sync()
        for one in self.names.values():
            one.lose(random)

    def copy(self) -> Directory:
        """A copy of this directory and everything in it, durable."""
        made = Directory({name: one.copy() for name, one in self.names.items()})
        made.sync()
        return made


class Volume:
    """A tree of directories, by absolute paths."""

    def __init__(self) -> None:
        self._root = Directory()
        self._known: dict[str, Directory] = {"": self._root}
        """The directories that were looked up, by path."""

    def directory(self, path: str) -> Directory:
        """The directory at a path. Raises FileNotFoundError."""
        found = self._known.get(path)
        if found is None:
            parent, _, name = path.rpartition("/")
            one = self.directory(parent).names.get(name)
            if not isinstance(one, Directory):
                raise missing(path)
            found = self._known[path] = one
        return found

    def place(self, path: str) -> tuple[Directory, str]:
        """The parent directory of a path, and its last name."""
        parent, _, name = path.rpartition("/")
        return self.directory(parent), name

    def file(self, path: str) -> Inode:
        """The file at a path. Raises FileNotFoundError."""
        directory, name = self.place(path)
        found = directory.names.get(name)
        if not isinstance(found, Inode):
            raise missing(path)
        return found

    def files(self, below: str = "") -> Iterator[tuple[str, Inode]]:
        """Every file below a directory with its path."""
        for name, one in self.directory(below).names.items():
            path = f"{below}/{name}"
            if isinstance(one, Inode):
                yield path, one
            else:
                yield from self.files(path)

    def has(self, path: str) -> bool:
        """Whether a path has a file or a directory."""
        try:
            directory, name = self.place(path)
        except FileNotFoundError:
            return False
        return name in directory.names

    def make(self, path: str) -> Directory:
        """The directory at a path. Creates it and its parents if they are missing.

        A directory in the root is a mount point of this volume and has always existed.
        """
        try:
            return self.directory(path)
        except FileNotFoundError:
            parent, _, name = path.rpartition("/")
            made = self._known[path] = Directory()
            self.make(parent).put(name, made)
            self._root.sync()
            return made

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory. It replaces what has the new name."""
        directory, name = self.place(source)
        if name not in directory.names:
            raise missing(source)
        one = directory.names[name]
        there, new_name = self.place(target)
        there.put(new_name, one)
        directory.drop(name)
        self._forget(source, target)

    def unlink(self, path: str) -> None:
        """Remove the name of a file."""
        directory, name = self.place(path)
        if not isinstance(directory.names.get(name), Inode):
            raise missing(path)
        directory.drop(name)

    def remove_tree(self, path: str) -> None:
        """Remove all names below a directory, then its own."""
        directory, name = self.place(path)
        one = directory.names.get(name)
        if isinstance(one, Directory):
            for below in tuple(one.names):
                if isinstance(one.names[below], Directory):
                    self.remove_tree(f"{path}/{below}")
                else:
                    one.drop(below)
            directory.drop(name)
            self._forget(path)

    def put_tree(self, path: str, tree: Inode | Directory | None) -> None:
        """Replace what is at a path durably, as if another program did it; None removes it."""
        directory, name = self.place(path)
        for names in (directory.names, directory.durable):
            names.pop(name, None)
            if tree is not None:
                names[name] = tree
        directory.changes = [one for one in directory.changes if one[0] != name]
        self._forget(path)

    def lose_power(self, random: Random) -> None:
        """Lose what was not synced, in whole or in part."""
        self._root.lose(random)
        self._known = {"": self._root}

    def _forget(self, *paths: str) -> None:
        """Drop cached lookups at and below these paths."""
        self._known = {
            known: one
            for known, one in self._known.items()
            if not any(known == path or known.startswith(path + "/") for path in paths)
        }


def missing(path: str) -> OSError:
    """The error for a path that does not exist."""
    return os_error(errno.ENOENT, path)


def os_error(number: int, path: str) -> OSError:
    """The OSError of a failed call."""
    return OSError(number, os.strerror(number), path)


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _write(data: bytearray, position: int, written: bytes | bytearray) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written
