"""Options shared by several benchmarks."""

from __future__ import annotations

from typing import Annotated

import typer

Pairs = Annotated[int, typer.Option(min=1, help="Interleaved pairs of each workload.")]
Seconds = Annotated[float, typer.Option(min=0.5, help="Length of a measured run.")]
Only = Annotated[list[str] | None, typer.Option(help="Workloads with this in the name.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="key=value for raylog up.")]
WriteDocs = Annotated[
    bool, typer.Option("--write-docs", help="Replace the section in docs/BENCHMARKS.md.")
]
