"""The files of each area, and the mistakes that a seed draws from them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.mutants.operators import Mutant, is_another_program, mutants_of

ROOT = Path(__file__).parents[2]
AREAS: Mapping[str, tuple[str, ...]] = {
    "storage": ("storage",),
    "replication": ("actors/replica",),
    "groups and transactions": ("actors/group", "actors/transaction", "actors/coordination"),
    "gateway": ("actors/gateway",),
    "controller": ("actors/controller", "actors/metadata"),
}
UNIT_TESTS: Mapping[str, tuple[str, ...]] = {
    "storage": ("tests/unit/storage",),
    "replication": (
        "tests/unit/actors/replica",
        "tests/unit/actors/test_replica_writes.py",
    ),
    "groups and transactions": (
        "tests/unit/actors/group",
        "tests/unit/actors/transaction",
        "tests/unit/actors/coordination",
    ),
    "gateway": ("tests/unit/actors/gateway",),
    "controller": (
        "tests/unit/actors/controller",
        "tests/unit/actors/metadata",
        "tests/unit/actors/broker",
    ),
}


def source_of(mutant: Mutant, root: Path = ROOT) -> bytes:
    """The content of the file without the mistake."""
    return (root / mutant.path).read_bytes()


def drawn(seed: int, count: int, root: Path = ROOT) -> list[tuple[str, Mutant]]:
    """Mistakes with their areas, in turn: equally many per area, at most one per line.

    Each is drawn in two steps, first a kind of mistake and then a place, so that frequent kinds do
    not dominate. The list depends only on the seed and the sources, and a longer list begins with a
    shorter one.
    """
    possible = {area: _by_operator(places, root) for area, places in AREAS.items()}
    chances = {area: random.Random(f"{seed} {area}") for area in AREAS}
    found: list[tuple[str, Mutant]] = []
    taken: set[tuple[Path, int]] = set()
    areas = list(AREAS)
    while len(found) < count:
        area = areas[len(found) % len(areas)]
        chance, kinds = chances[area], possible[area]
        mutant = chance.choice(kinds[chance.choice(sorted(kinds))])
        place = (mutant.path, mutant.line)
        if place not in taken and is_another_program(source_of(mutant, root), mutant):
            taken.add(place)
            found.append((area, mutant))
    return found


@cache
def _by_operator(places: tuple[str, ...], root: Path) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for path in sorted(path for place in places for path in (root / place).rglob("*.py")):
        for mutant in mutants_of(path.relative_to(root), path.read_bytes()):
            found.setdefault(mutant.operator, []).append(mutant)
    return found
