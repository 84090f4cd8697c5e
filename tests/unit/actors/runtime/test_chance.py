"""Ids that clients receive come from the system's random source."""

import random

from raylog.actors.runtime.loop import LoopRuntime


def test_runtime_ids_are_unpredictable() -> None:
    def broken(_failure: BaseException) -> None:
        raise AssertionError

    chance = LoopRuntime("one", broken).random
    assert isinstance(chance, random.SystemRandom)
    assert len({chance.getrandbits(64) for _ in range(100)}) == 100
