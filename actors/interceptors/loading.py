"""Finding interceptors: entry points of the group `raylog.interceptors`, imported on first use.

What raylog brings is registered exactly as a stranger's package registers its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import cast

from raylog.actors.interceptors.api import ENTRY_POINT_GROUP, Interceptor, Wanted
from raylog.actors.interceptors.chain import Chain, InterceptorsUnusable
from raylog.assignors.plugins import PluginDescription, Plugins
from raylog.assignors.plugins import PluginError as PluginError

FILE_OPTION = "file"
"""An option whose last word this is names a file in `raylog.interceptors.files.dir`."""
_PLUGINS = Plugins(
    ENTRY_POINT_GROUP,
    "interceptor",
    "raylog.actors.interceptors.api.Interceptor",
    ("configure", "on_produce", "on_fetch"),
)


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
    interceptor = cast(Interceptor, _PLUGINS.load(name))
    try:
        interceptor.configure(options)
    except Exception as failure:
        raise PluginError(f"interceptor {name!r} refuses its options: {failure}") from failure
    return interceptor


def names() -> list[str]:
    """What is registered; nothing is imported."""
    return _PLUGINS.names()


def require(wanted: Collection[str]) -> None:
    """Raise PluginError, naming the nearest, unless all of these are registered."""
    known = names()
    for name in wanted:
        if name not in known:
            raise PluginError(_PLUGINS.unknown(name))


def option_of(option: str) -> tuple[str, str]:
    """(interceptor, option) of `NAME.OPTION`; PluginError, naming the nearest, if none fits."""
    known = names()
    fitting = [name for name in known if option.startswith(f"{name}.")]
    if not fitting:
        raise PluginError(_PLUGINS.unknown(option.partition(".")[0]))
    name = max(fitting, key=len)
    return name, option.removeprefix(f"{name}.")


def available() -> list[PluginDescription]:
    """All registered interceptors, by name; every one is loaded to see whether it can be."""
    return _PLUGINS.available()
