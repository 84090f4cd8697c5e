"""Draw mistakes from a seed and run tests against each: `make mutants SEED=1 COUNT=20`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.covering import Covering, covering
from tests.mutants.drawing import ROOT, drawn, source_of
from tests.mutants.operators import Mutant
from tests.mutants.running import STAGES, Copy, Verdict


def main() -> int:
    """Draw and run as the command line says. Returns 1 if a mistake survived."""
    asked = _arguments()
    mutants = drawn(asked.seed, asked.count)
    _say(f"seed {asked.seed}, {asked.count} mistakes, commit {_commit()}\n")
    for number, (area, mutant) in enumerate(mutants, 1):
        place = f"{mutant.path}:{mutant.line}"
        _say(f"### {number}. {place}, {mutant.operator} ({area})\n")
        _say(f"```diff\n{mutant.diff(source_of(mutant))}\n```\n")
    if asked.list:
        return 0
    chosen = asked.only or range(1, asked.count + 1)
    survivors = 0
    _say("| number | place | mistake | found by | s |\n|---|---|---|---|---|")
    with TemporaryDirectory(prefix="raylog-mutants-") as directory:
        known = covering() if "covering" in asked.stages else Covering()
        copy = Copy.made_in(Path(directory), known)
        for number in chosen:
            area, mutant = mutants[number - 1]
            verdict = copy.judge(area, mutant, asked.stages)
            survivors += verdict.found_by is None
            _say(_row(number, mutant, verdict))
    _say(f"\n{len(chosen) - survivors} of {len(chosen)} found by {', '.join(asked.stages)}")
    return int(survivors > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--list", action="store_true", help="print the mistakes, run nothing")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the list to run")
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=STAGES,
        default=list(STAGES),
        help="tests to run, in this order; covering: unit tests that execute the line, "
        "area: unit tests of the mistake's area",
    )
    return parser.parse_args()


def _row(number: int, mutant: Mutant, verdict: Verdict) -> str:
    old, new = (_changed(mutant, sign) for sign in "-+")
    found = f"`{verdict.found_by}`" if verdict.found_by else "survived"
    remark = f" ({verdict.remark})" if verdict.remark else ""
    cells = [
        str(number),
        f"`{mutant.path}:{mutant.line}`",
        f"`{old}` → `{new}`",
        found + remark,
        f"{verdict.seconds:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _changed(mutant: Mutant, sign: str) -> str:
    lines = mutant.diff(source_of(mutant)).splitlines()
    return " ".join(line[1:].strip() for line in lines if line.startswith(sign))


def _commit() -> str:
    asked: Sequence[str] = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it is run for


if __name__ == "__main__":
    sys.exit(main())
