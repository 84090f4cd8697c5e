"""Adds `--json` to commands that change something: it prints what was done as one JSON object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

import typer

from raylog.cli.options import Json
from raylog.cli.output import Answer, answering, print_json

P = ParamSpec("P")
Facts = Mapping[str, object]


def acting(command: Callable[P, Facts | None]) -> Callable[..., None]:
    """Return a command with the option --json, which prints what the command returns.

    `done` is added: the messages that the command printed on standard error. If a command prints
    its answer early, with `print_answer`, nothing is printed at its end. If it raises an error,
    nothing is printed. If it continues after failures and then raises typer.Exit, the failures are
    printed under `failed`.
    """
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json
    )
    parameters = [*signature.parameters.values(), option]

    @wraps(command)
    def run(*args: Any, as_json: bool = False, **values: Any) -> None:
        if not as_json:
            command(*args, **values)
            return
        with answering() as answer:
            try:
                _print(answer, command(*args, **values))
            except typer.Exit:
                _print(answer, None)
                raise

    made: Any = run
    made.__signature__ = signature.replace(parameters=parameters, return_annotation=None)
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _print(answer: Answer, facts: Facts | None) -> None:
    """Print what was done, unless the command has already printed it."""
    if not answer.is_printed:
        failed = {"failed": answer.failed} if answer.failed else {}
        print_json({**(facts or {}), "done": answer.messages, **failed})
