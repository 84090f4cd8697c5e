"""Chooses the preferred leader of each partition so that brokers lead evenly."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from itertools import pairwise

_Handed = dict[int, dict[int, dict[int, None]]]
"""Maps leader and other replica to the movable partitions they share (an ordered set)."""


def even_leaders(
    replicas: Sequence[list[int]], movable: Sequence[bool], brokers: Collection[int]
) -> None:
    """Reorder replicas in place so that brokers' leader counts differ by at most 1, if possible.

    Few partitions change. Partitions that are not movable count too.
    """
    led = dict.fromkeys(sorted(brokers), 0)
    handed: _Handed = {broker: {} for broker in led}
    for index, found in enumerate(replicas):
        if found and found[0] in led:
            led[found[0]] += 1
            if movable[index]:
                _note(handed, index, found)
    stuck: set[int] = set()
    fresh = True
    while True:
        rest = [one for one in led if one not in stuck]
        if rest:
            leader = max(rest, key=lambda one: (led[one], -one))
            path = _direct(handed, led, leader) or _path(handed, led, leader)
            if path is None:
                stuck.add(leader)
            else:
                _hand_over(replicas, handed, path)
                led[path[0]] -= 1
                led[path[-1]] += 1
                fresh = False
        elif fresh:
            return
        else:  # leaders have moved since, so brokers may no longer be stuck
            stuck.clear()
            fresh = True


def _hand_over(replicas: Sequence[list[int]], handed: _Handed, path: Sequence[int]) -> None:
    """Make each broker of a path hand one partition to the next."""
    for giver, taker in pairwise(path):
        index = next(iter(handed[giver][taker]))
        found = replicas[index]
        _forget(handed, index, found)
        at = found.index(taker)
        found[0], found[at] = taker, giver
        _note(handed, index, found)


def _note(handed: _Handed, index: int, found: list[int]) -> None:
    for other in found[1:]:
        if other in handed:
            handed[found[0]].setdefault(other, {})[index] = None


def _forget(handed: _Handed, index: int, found: list[int]) -> None:
    for other in found[1:]:
        if other in handed:
            others = handed[found[0]][other]
            del others[index]
            if not others:
                del handed[found[0]][other]


def _direct(handed: _Handed, led: dict[int, int], leader: int) -> list[int] | None:
    """Return a path of one step, from `leader` to the other replica that leads least.

    Returns None if that step would not make the leader counts more even.
    """
    least = min(handed[leader], key=lambda one: (led[one], one), default=leader)
    return [leader, least] if led[least] + 1 < led[leader] else None


def _path(handed: _Handed, led: dict[int, int], leader: int) -> list[int] | None:
    """Return a path of brokers that each hand a partition to the next; None if there is none.

    The last broker leads at least two partitions fewer than the first, `leader`.
    """
    came_from = {leader: leader}
    waiting = deque([leader])
    while waiting:
        giver = waiting.popleft()
        for taker in sorted(handed[giver]):
            if taker in came_from:
                continue
            came_from[taker] = giver
            if led[taker] + 1 < led[leader]:
                path = [taker]
                while path[-1] != leader:
                    path.append(came_from[path[-1]])
                return path[::-1]
            waiting.append(taker)
    return None
