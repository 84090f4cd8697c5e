"""All `raylog` commands in documents and in deploy/ exist, with their options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from raylog.cli.app import app

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/load-tests/*.md")]
)
DOCUMENTS.remove(ROOT / "docs" / "RELIABILITY.md")  # tells of commands that there were, too
FILES = sorted(one for one in (ROOT / "deploy").rglob("*") if one.is_file())
_CODE = re.compile(r"`(raylog [^`]+)`|^\$ (.*\braylog .*)$", re.MULTILINE)
_COMMAND = re.compile(r"(?<![\w./@-])raylog ([a-z](?:[^`|;&<>#()'\",\n]|,(?!\s))*)")
"""One command, up to where a shell would end it; quoted arguments are not looked at."""
DEFAULTS = {"loadtest": "run"}
"""Groups, and the command that a word stands for which is none of theirs."""
COMMANDS = sorted(
    {
        (path.name, command.strip())
        for path in DOCUMENTS
        for code in _CODE.findall(path.read_text().replace("\\\n", " "))
        for command in _COMMAND.findall(" ".join(code))
    }
    | {
        (path.name, command.strip())
        for path in FILES
        for command in re.findall(
            r"(?<![\w./@-])raylog ((?:up|down|status|health|brokers) [^`|;&<>#()'\"\n]*)",
            path.read_text(),
        )
    }
)


def test_commands_that_are_shown_exist_with_their_options() -> None:
    root = typer.main.get_command(app)
    assert [fault for name, shown in COMMANDS for fault in _faults(root, name, shown)] == []


def _faults(root: object, name: str, shown: str) -> list[str]:
    found, words = root, shown.split()
    while isinstance(found, TyperGroup) and words:
        if words[0] not in found.commands and found.name in DEFAULTS:
            words = [DEFAULTS[found.name], *words]
        if words[0].startswith("-"):
            break
        if words[0] not in found.commands:
            return [f"{name}: raylog {shown}: there is no command {words[0]}"]
        found, words = found.commands[words[0]], words[1:]
    assert isinstance(found, TyperGroup | TyperCommand)
    known = {one for option in found.params for one in (*option.opts, *option.secondary_opts)}
    known |= {"-h", "--help", "--install-completion"}
    options = [word.partition("=")[0] for word in words]
    return [
        f"{name}: raylog {shown}: there is no option {one}"
        for one in options
        if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", one) and one not in known
    ]


def test_the_documents_show_commands() -> None:
    names = {name for name, _ in COMMANDS}
    assert {"README.md", "operations.md", "deploy.md", "runbook.md", "raylog.service"} <= names


def test_help_is_not_broken_anew_on_a_terminal_of_80_columns() -> None:
    """Lines of a docstring after its first paragraph are shown as they stand, one blank aside."""
    root = typer.main.get_command(app)
    assert [line for line in _help_lines(root) if len(line) > 78] == []


def _help_lines(command: object) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for one in command.commands.values():
            yield from _help_lines(one)
        return
    assert isinstance(command, TyperCommand)
    _, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    yield from rest.splitlines()
