"""Adds `--client-config` and `-X` to commands that connect to brokers, and makes their clients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raylog.cli.options import parse_pairs

if TYPE_CHECKING:
    from raylog.client import BlockingClient, ClientSettings

SERVERS_VARIABLE = "RAYLOG_BOOTSTRAP"
_SERVERS = "bootstrap.servers"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_settings: ContextVar[Mapping[str, object]] = ContextVar("_settings", default={})  # noqa: B039  # never changed
"""Client settings of the running command."""

ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        envvar="RAYLOG_CLIENT_CONFIG",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Properties file with client settings, such as security.protocol and sasl.username.",
    ),
]
ClientSetting = Annotated[
    list[str] | None,
    typer.Option(
        "-X", metavar="KEY=VALUE", help="A client setting, which overrides the file; repeatable."
    ),
]
_OWN = {"client_config": ClientConfig, "client_setting": ClientSetting, "context": typer.Context}


def take_client_settings(app: typer.Typer) -> None:
    """Add the options to all commands of an application that have the option --bootstrap."""
    for command in app.registered_commands:
        if command.callback is not None and _connects(command.callback):
            command.callback = _connecting(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            take_client_settings(group.typer_instance)


def given_settings() -> dict[str, str]:
    """Return the running command's -X and --client-config settings, except bootstrap.servers."""
    return {name: str(value) for name, value in _settings.get().items() if name != _SERVERS}


def connect(bootstrap: str | Sequence[str], **usual: object) -> BlockingClient:
    """Return a client with the command's settings, which override the `usual` ones."""
    from raylog.client import BlockingClient

    return BlockingClient(_config(bootstrap, usual))


def client_settings(bootstrap: str | Sequence[str]) -> ClientSettings:
    """Return the command's settings for other kinds of clients. Raises InvalidSetting."""
    from raylog.client.setting_parsing import client_only

    return client_only(_config(bootstrap, {}), {})


def _config(bootstrap: str | Sequence[str], usual: Mapping[str, object]) -> dict[str, object]:
    settings = {
        name.replace("_", "."): value for name, value in {**usual, **_settings.get()}.items()
    }
    return {**settings, _SERVERS: bootstrap}


def _connects(command: Callable[..., object]) -> bool:
    """Whether a command connects to the brokers that --bootstrap names."""
    option = inspect.signature(command, eval_str=True).parameters.get("bootstrap")
    found = () if option is None else getattr(option.annotation, "__metadata__", ())
    return any(getattr(one, "envvar", None) == SERVERS_VARIABLE for one in found)


def _connecting(command: Callable[..., object]) -> Callable[..., None]:
    """Return a command with the options. Their bootstrap.servers apply without --bootstrap."""
    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if annotation is typer.Context else None,
            annotation=annotation,
        )
        for name, annotation in _OWN.items()
    ]

    @wraps(command)
    def run(
        *args: Any,
        client_config: Path | None,
        client_setting: list[str] | None,
        context: typer.Context,
        **values: Any,
    ) -> None:
        settings = read_given(client_config, client_setting)
        source = context.get_parameter_source("bootstrap")
        if _SERVERS in settings and source is not None and source.name == "DEFAULT":
            values["bootstrap"] = settings[_SERVERS]
        before = _settings.set(settings)
        try:
            command(*args, **values)
        finally:
            _settings.reset(before)

    made: Any = run
    parameters = [*signature.parameters.values(), *options]
    made.__signature__ = signature.replace(parameters=parameters, return_annotation=None)
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def read_given(file: Path | None, pairs: list[str] | None) -> dict[str, str]:
    """Return the settings of --client-config and -X. Raises BadParameter."""
    return {**_read(file), **parse_pairs(pairs, "-X")}


def _read(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return read_properties(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--client-config") from error


def read_properties(text: str) -> dict[str, str]:
    """Parse a Java properties file. Raises ValueError if a line is malformed.

    A line that ends with a backslash continues on the next line. Lines that begin with `#` or `!`
    are comments.
    """
    found: dict[str, str] = {}
    lines = enumerate(text.removeprefix("\ufeff").splitlines(), 1)
    for number, first in lines:
        line = first.lstrip()
        if not line or line[0] in "#!":
            continue
        while _goes_on(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip()
        parts = re.fullmatch(r"((?:[^\\=:\s]|\\.)+)\s*[=:\s]\s*(.*)", line, re.DOTALL)
        if parts is None:
            raise ValueError(f"line {number}: expected NAME=VALUE, found {first!r}")
        found[_unescaped(parts[1])] = _unescaped(parts[2]).rstrip()
    return found


def _goes_on(line: str) -> bool:
    """Whether a line ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, character = match[1], match[2]
        return chr(int(code, 16)) if code else _ESCAPED.get(character, character)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text)
