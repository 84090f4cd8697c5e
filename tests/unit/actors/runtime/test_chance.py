"""Ids that clients are given come from the system's source of chance."""

import random

from raylog.actors.runtime.loop import LoopRuntime


def test_nobody_can_foresee_the_ids_that_a_runtime_draws() -> None:
    def broken(_failure: BaseException) -> None:
        raise AssertionError

    chance = LoopRuntime("one", broken).random
    assert isinstance(chance, random.SystemRandom)
    assert len({chance.getrandbits(64) for _ in range(100)}) == 100
