"""Reads broker settings from a file and from `--set`, and checks them before anything starts."""

from __future__ import annotations

import tomllib
from pathlib import Path

from raylog.cli.failures import EXIT_USAGE, CommandFailed, text_of
from raylog.cli.options import parse_pairs

_SET_BY_OPTIONS = {
    "broker.id": "--first-broker-id",
    "log.dirs": "--data",
}


def read_settings(file: Path | None, pairs: list[str] | None) -> dict[str, str]:
    """Return all settings; `pairs` override the file.

    Raises InvalidConfig if a key is unknown, a value is out of range, or two values contradict each
    other, and CommandFailed if the file is malformed or a key is different for each broker.
    """
    from raylog.actors.config import BrokerSettings
    from raylog.actors.config.agreement import check_agreement

    settings = {**(_read_file(file) if file is not None else {}), **parse_pairs(pairs, "--set")}
    for key, option in _SET_BY_OPTIONS.items():
        if key in settings:
            raise CommandFailed(f"{key} is different for each broker", f"Use {option} instead")
    checked = BrokerSettings(settings)
    check_agreement(checked.raw)
    return dict(checked.given)


def _read_file(file: Path) -> dict[str, str]:
    """Read a TOML file (tables or quoted dotted keys), or else a properties file."""
    text = text_of(file, "TOML or KEY=VALUE lines")
    if file.suffix != ".toml":
        return _properties(file, text)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandFailed(f"{file}: {error}", exit_code=EXIT_USAGE) from error
    return _flattened(tables, "")


def _flattened(table: dict[str, object], prefix: str) -> dict[str, str]:
    """Flatten nested tables to dotted keys, with values as text."""
    found: dict[str, str] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= _flattened(value, f"{name}.")
        elif isinstance(value, list):
            found[name] = ",".join(str(item) for item in value)
        else:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _properties(file: Path, text: str) -> dict[str, str]:
    """Parse KEY=VALUE lines; lines that begin with # or ! are comments."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise CommandFailed(
                f"{file}, line {number}: expected KEY=VALUE, found {line.strip()!r}",
                exit_code=EXIT_USAGE,
            )
        found[key.strip()] = value.strip()
    return found
