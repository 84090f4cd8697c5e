"""Finds plug-ins by their entry points, and imports them when they are first used.

Raylog's own plug-ins are registered in the same way as those of other packages.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

_OWN_DISTRIBUTION = "raylog"


class PluginError(Exception):
    """A plug-in cannot be used. The message names it, its origin and the failure."""


@dataclass(frozen=True, slots=True)
class PluginDescription:
    """A registered plug-in."""

    name: str
    target: str
    """The target of the entry point: `module:Class`."""
    distribution: str
    """The installed package that registers it; "?" if unknown."""
    version: str
    error: str | None
    """Why it cannot be used; None if it loads."""

    @property
    def state(self) -> str:
        """`ready` or `failed`."""
        return "ready" if self.error is None else "failed"


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plug-ins of one kind."""

    group: str
    """The group of the entry points."""
    kind: str
    """The name of the kind in messages."""
    protocol: str
    """The base class of the plug-ins."""
    methods: tuple[str, ...]
    """The methods that they must have."""
    misfit: Callable[[object], str | None] = lambda _: None
    """A further check. Returns what is wrong, or None."""
    named: bool = True
    """Whether they have a `name`, which must equal that of the entry point."""

    def load(self, name: str) -> object:
        """Create an instance of the plug-in registered under `name`. Raises PluginError."""
        found = [entry for entry in _entries(self.group) if entry.name == name]
        if not found:
            raise PluginError(self.unknown(name))
        return self._instance(self._chosen(found))

    def names(self) -> list[str]:
        """The registered names. Nothing is imported."""
        return sorted({entry.name for entry in _entries(self.group)})

    def unknown(self, name: str) -> str:
        """The message for a name that is not registered."""
        known = self.names()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else "."
        there = ", ".join(known) or "none"
        return f"no {self.kind} {name!r} is installed{hint} There are: {there}"

    def is_own(self, name: str) -> bool:
        """Whether `name` is one of Raylog's own plug-ins."""
        return any(
            entry.name == name and _distribution(entry)[0] == _OWN_DISTRIBUTION
            for entry in _entries(self.group)
        )

    def available(self) -> list[PluginDescription]:
        """All registered plug-ins, by name. Each is loaded to see whether that works."""
        entries = sorted(
            _entries(self.group), key=lambda entry: (entry.name, *_distribution(entry))
        )
        return [
            self._described(entry, [other for other in entries if other.name == entry.name])
            for entry in entries
        ]

    def _described(self, entry: EntryPoint, rivals: list[EntryPoint]) -> PluginDescription:
        error = None
        try:
            if self._chosen(rivals) != entry:
                error = f"{_OWN_DISTRIBUTION}'s own {self.kind} of that name is used instead"
            else:
                self._instance(entry)
        except PluginError as failure:
            error = str(failure)
        return PluginDescription(entry.name, entry.value, *_distribution(entry), error)

    def _chosen(self, found: list[EntryPoint]) -> EntryPoint:
        """The plug-in to use among several with one name. Raylog's own cannot be replaced."""
        own = [entry for entry in found if _distribution(entry)[0] == _OWN_DISTRIBUTION]
        candidates = own or found
        if len({entry.value for entry in candidates}) > 1:
            origins = ", ".join(sorted(_origin(entry) for entry in candidates))
            raise PluginError(
                f"several packages register the {self.kind} {found[0].name!r}: {origins}"
            )
        return candidates[0]

    def _instance(self, entry: EntryPoint) -> object:
        """Import, create and check a plug-in. Any exception becomes a PluginError."""
        try:
            plugin: object = entry.load()()
        except Exception as failure:  # foreign code may raise anything
            raise PluginError(
                f"{self.kind} {_origin(entry)} does not load: {type(failure).__name__}: {failure}"
            ) from failure
        for method in self.methods:
            if not callable(getattr(plugin, method, None)):
                raise PluginError(
                    f"{self.kind} {_origin(entry)} has no method {method}: inherit from "
                    f"{self.protocol}"
                )
        wrong = self.misfit(plugin)
        if wrong is not None:
            raise PluginError(f"{self.kind} {_origin(entry)}: {wrong}")
        name = getattr(plugin, "name", None)
        if self.named and name != entry.name:
            raise PluginError(
                f"{self.kind} {_origin(entry)} calls itself {name!r}, its entry point "
                f"{entry.name!r}"
            )
        return plugin


def _entries(group: str) -> tuple[EntryPoint, ...]:
    """The registered entry points, cached until packages are installed or removed."""
    return _entries_in(group, tuple((path, _changed_ns(path)) for path in sys.path))


@lru_cache(maxsize=8)
def _entries_in(group: str, _places: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _changed_ns(path: str) -> int:
    """The modification time of a directory of packages; 0 if it does not exist."""
    try:
        return os.stat(path or os.curdir).st_mtime_ns
    except OSError:
        return 0


def _origin(entry: EntryPoint) -> str:
    """A plug-in and its package, for error messages."""
    distribution, version = _distribution(entry)
    return f"{entry.name!r} ({entry.value}, from {distribution} {version})"


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    """Name and version of the package that registers it."""
    if entry.dist is None:
        return "?", "?"
    return entry.dist.name, entry.dist.version
