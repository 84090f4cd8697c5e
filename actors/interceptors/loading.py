"""Finding interceptors: entry points of the group `raylog.interceptors`, imported on first use.

What raylog brings is registered exactly as a stranger's package registers its own.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from raylog.actors.interceptors.api import ENTRY_POINT_GROUP, Interceptor, Wanted
from raylog.actors.interceptors.chain import Chain, InterceptorsUnusable
from raylog.assignors.api import PluginDescription
from raylog.assignors.api import PluginError as PluginError

_OWN_DISTRIBUTION = "raylog"
FILE_OPTION = "file"
"""An option whose last word this is names a file in `raylog.interceptors.files.dir`."""
_METHODS = ("configure", "on_produce", "on_fetch")


def load_chain(wanted: Wanted, files_dir: str | None) -> Chain:
    """The chain a topic asks for. Runs plug-ins' code; raises InterceptorsUnusable."""
    try:
        return _chain(wanted, files_dir)
    except PluginError as failure:
        raise InterceptorsUnusable(str(failure)) from failure


def _chain(wanted: Wanted, files_dir: str | None) -> Chain:
    options: dict[str, dict[str, str]] = {name: {} for name in wanted.names}
    for full_name, value in wanted.options:
        name, option = option_of(full_name)
        if option.rpartition(".")[2] == FILE_OPTION:
            value = _allowed_file(full_name, value, files_dir)
        options.setdefault(name, {})[option] = value
    return Chain(wanted.topic, tuple(load(name, options[name]) for name in wanted.names))


def _allowed_file(option: str, value: str, files_dir: str | None) -> str:
    """The path of a file that a client may name: whoever sets options could read any otherwise."""
    if not files_dir:
        raise PluginError(
            f"{option} names a file: the broker has no raylog.interceptors.files.dir to hold it"
        )
    allowed = os.path.realpath(files_dir)
    path = os.path.realpath(os.path.join(allowed, value))
    if os.path.commonpath([allowed, path]) != allowed:
        raise PluginError(f"{option}: {value} is not in raylog.interceptors.files.dir")
    return path


def load(name: str, options: Mapping[str, str]) -> Interceptor:
    """A new instance of the interceptor registered under `name`, configured.

    Raises PluginError, which names it and what failed. Runs the plug-in's code.
    """
    interceptor = _instance(_chosen(_registered(name)))
    try:
        interceptor.configure(options)
    except Exception as failure:
        raise PluginError(f"interceptor {name!r} refuses its options: {failure}") from failure
    return interceptor


def names() -> list[str]:
    """What is registered; nothing is imported."""
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def require(wanted: Collection[str]) -> None:
    """Raise PluginError, naming the nearest, unless all of these are registered."""
    known = names()
    for name in wanted:
        if name not in known:
            raise PluginError(_unknown(name, known))


def option_of(option: str) -> tuple[str, str]:
    """(interceptor, option) of `NAME.OPTION`; PluginError, naming the nearest, if none fits."""
    known = names()
    fitting = [name for name in known if option.startswith(f"{name}.")]
    if not fitting:
        raise PluginError(_unknown(option.partition(".")[0], known))
    name = max(fitting, key=len)
    return name, option.removeprefix(f"{name}.")


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"no interceptor {name!r} is installed{hint} There are: {', '.join(known) or 'none'}"


def available() -> list[PluginDescription]:
    """All registered interceptors, by name; every one is loaded to see whether it can be."""
    entries = entry_points(group=ENTRY_POINT_GROUP)
    described = []
    for entry in sorted(entries, key=lambda entry: (entry.name, *_distribution(entry))):
        error = None
        try:
            if _chosen([other for other in entries if other.name == entry.name]) != entry:
                error = f"{_OWN_DISTRIBUTION}'s own interceptor of that name is used instead"
            else:
                _instance(entry)
        except PluginError as failure:
            error = str(failure)
        described.append(PluginDescription(entry.name, entry.value, *_distribution(entry), error))
    return described


def _registered(name: str) -> list[EntryPoint]:
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == name]
    if not found:
        raise PluginError(_unknown(name, names()))
    return found


def _chosen(found: list[EntryPoint]) -> EntryPoint:
    """The one of several plug-ins of one name: raylog's own, which nobody can replace."""
    own = [entry for entry in found if _distribution(entry)[0] == _OWN_DISTRIBUTION]
    candidates = own or found
    if len({entry.value for entry in candidates}) > 1:
        origins = ", ".join(sorted(_origin(entry) for entry in candidates))
        raise PluginError(f"several packages register an interceptor {found[0].name!r}: {origins}")
    return candidates[0]


def _instance(entry: EntryPoint) -> Interceptor:
    """Import, make and check one plug-in; whatever it raises becomes a PluginError."""
    try:
        interceptor = entry.load()()
    except Exception as failure:
        raise PluginError(
            f"interceptor {_origin(entry)} does not load: {type(failure).__name__}: {failure}"
        ) from failure
    for method in _METHODS:
        if not callable(getattr(interceptor, method, None)):
            raise PluginError(
                f"interceptor {_origin(entry)} has no method {method}: inherit from "
                "raylog.actors.interceptors.api.Interceptor"
            )
    name = getattr(interceptor, "name", None)
    if name != entry.name:
        raise PluginError(
            f"interceptor {_origin(entry)} calls itself {name!r}, its entry point {entry.name!r}"
        )
    return cast(Interceptor, interceptor)


def _origin(entry: EntryPoint) -> str:
    """A plug-in and where it comes from, for error messages."""
    distribution, version = _distribution(entry)
    return f"{entry.name!r} ({entry.value}, from {distribution} {version})"


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    """Name and version of the package that registers it."""
    if entry.dist is None:
        return "?", "?"
    return entry.dist.name, entry.dist.version
