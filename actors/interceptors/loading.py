"""Loads interceptors: entry points of the group `raylog.interceptors`, imported on first use.

Those that Raylog includes are registered like those of any other package.
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
"""An option whose last part is this names a file in `raylog.interceptors.files.dir`."""
_PLUGINS = Plugins(
    ENTRY_POINT_GROUP,
    "interceptor",
    "raylog.actors.interceptors.api.Interceptor",
    ("configure", "on_produce", "on_fetch"),
)


def load_chain(wanted: Wanted, files_dir: str | None) -> Chain:
    """Return the chain for a topic. It runs plug-in code; raises InterceptorsUnusable."""
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
    """Return the path of a file option. Others are refused: an option could expose any file."""
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
    """Return a new, configured instance of the interceptor registered as `name`.

    It runs plug-in code. Raises PluginError, which names the interceptor and what failed.
    """
    interceptor = cast(Interceptor, _PLUGINS.load(name))
    try:
        interceptor.configure(options)
    except Exception as failure:
        raise PluginError(f"interceptor {name!r} refuses its options: {failure}") from failure
    return interceptor


def names() -> list[str]:
    """Return the registered names; nothing is imported."""
    return _PLUGINS.names()


def require(wanted: Collection[str]) -> None:
    """Raise PluginError, with the nearest name, unless all of these are registered."""
    known = names()
    for name in wanted:
        if name not in known:
            raise PluginError(_PLUGINS.unknown(name))


def option_of(option: str) -> tuple[str, str]:
    """Split `NAME.OPTION` into (interceptor, option); raises PluginError, with the nearest name."""
    known = names()
    fitting = [name for name in known if option.startswith(f"{name}.")]
    if not fitting:
        raise PluginError(_PLUGINS.unknown(option.partition(".")[0]))
    name = max(fitting, key=len)
    return name, option.removeprefix(f"{name}.")


def available() -> list[PluginDescription]:
    """Return all registered interceptors, by name. Each is loaded to see whether it works."""
    return _PLUGINS.available()
