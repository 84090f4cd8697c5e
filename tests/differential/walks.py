"""Random walks: actions of group members in an order that nobody thought of.

The seed alone determines a walk: the next action does not depend on the answers, except for their
member ids, generations and epochs, and for which members wait for an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.differential.participants import Classic, Consumer, Outsider, subscription
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage

SESSIONS = Sessions()
STEPS = 20
Choice = tuple[int, Callable[[], object]]
"""How often relative to others, and what is done."""


@SESSIONS.of("walk-classic-{0}", range(36))
def classic_walk(stage: Stage, seed: int) -> None:
    """Three members in the classic protocol, dynamic and static."""
    chance = random.Random(f"classic {seed}")
    members = [_classic(stage, name, chance, index) for index, name in enumerate("abc")]
    for _ in range(STEPS):
        member = chance.choice(members)
        others = [one for one in members if one is not member]
        _choose(chance, [*_classic_choices(stage, chance, member, others), *_looks(stage, chance)])


@SESSIONS.of("walk-consumer-{0}", range(40))
def consumer_walk(stage: Stage, seed: int) -> None:
    """Three members in the protocol of KIP-848, dynamic and static."""
    chance = random.Random(f"consumer {seed}")
    members = [_consumer(stage, name, chance) for name in "abc"]
    for _ in range(STEPS):
        member = chance.choice(members)
        _choose(chance, [*_consumer_choices(chance, member), *_looks(stage, chance)])


@SESSIONS.of("walk-mixed-{0}", range(20))
def mixed_walk(stage: Stage, seed: int) -> None:
    """A classic member and two of KIP-848 in one group, which moves between the protocols."""
    chance = random.Random(f"mixed {seed}")
    given = {"range": subscription("t2", version=3)}
    a = Classic(stage, "a", protocols=given, instance=chance.choice([None, "i-a"]))
    consumers = [Consumer(stage, name, "t2") for name in "bc"]
    for _ in range(STEPS):
        if chance.random() < 0.5:
            choices = _classic_choices(stage, chance, a, [])
        else:
            choices = _consumer_choices(chance, chance.choice(consumers))
        _choose(chance, [*choices, *_looks(stage, chance)])


def _choose(chance: random.Random, choices: Sequence[Choice]) -> None:
    weights = [weight for weight, _ in choices]
    chance.choices([act for _, act in choices], weights)[0]()


def _classic(stage: Stage, name: str, chance: random.Random, index: int) -> Classic:
    kinds = [("x", "y"), ("y", "x"), ("x",), ("y", "x", "z")]
    protocols = {
        one: subscription("t2", version=1, note=f"{name}/{one}")
        for one in kinds[chance.randrange(4)]
    }
    instance = f"i-{name}" if chance.random() < 0.35 else None
    return Classic(stage, name, protocols=protocols, instance=instance)


def _classic_choices(
    stage: Stage, chance: random.Random, member: Classic, others: Sequence[Classic]
) -> list[Choice]:
    """What a classic member may do now; one that waits can only be spoken for by another."""
    new, old = chance.choice([4, 5, 7, 9, 9, 9]), chance.choice([0, 2, 3, 5])
    version = new if member.instance or chance.random() < 0.85 else old
    wrong = chance.choice([member.generation - 1, member.generation + 1, -1, 0])
    if stage.is_parked(member.name):
        return [
            (3, lambda: member.heartbeat(by="x")),
            (2, lambda: member.leave(by="x")),
            *[
                (6, lambda one=one: _next(one, 9))
                for one in others
                if not stage.is_parked(one.name)
            ],
        ]
    return [
        (14, lambda: _next(member, version)),
        (6, lambda: member.heartbeat(chance.randrange(3, 5))),
        (1, lambda: member.join(version, member_id="")),
        (1, lambda: member.join(version, member_id="nobody")),
        (1, lambda: member.heartbeat(generation_id=wrong)),
        (1, lambda: member.sync(generation_id=wrong)),
        (2, lambda: member.sync()),
        (2, lambda: member.leave(chance.choice([2, 3, 5]) if not member.instance else 5)),
        (3, lambda: member.commit({"t2": {chance.randrange(2): chance.randrange(99)}}, 8)),
        (1, lambda: member.commit({"t2": {0: 3}}, generation_id_or_member_epoch=wrong)),
        (1, lambda: stage.disconnect(member.name) if member.member_id else None),
    ]


def _next(member: Classic, version: int) -> None:
    """What a well-behaved member would do: join, or sync after a join that was answered."""
    if member.generation > member.synced:
        member.synced = member.generation
        member.sync()
    else:
        member.join(version)


def _consumer(stage: Stage, name: str, chance: random.Random) -> Consumer:
    topics = chance.choice([("t2",), ("t6",), ("t2", "t3")])
    instance = f"i-{name}" if chance.random() < 0.35 else None
    return Consumer(stage, name, *topics, instance=instance, version=1)


def _consumer_choices(chance: random.Random, member: Consumer) -> list[Choice]:
    topics = chance.choice([["t1"], ["t6"], ["t3", "t2"], ["none"], []])
    wrong = chance.choice([member.epoch - 1, member.epoch + 1, 0])
    if member.epoch <= 0:
        return [
            (10, member.join),
            (1, member.heartbeat),
            (1, lambda: member.join(subscribed_topic_names=topics)),
            (1, member.leave),
        ]
    return [
        (12, member.confirm),
        (5, member.heartbeat),
        (2, member.join),
        (2, lambda: member.heartbeat(subscribed_topic_names=topics)),
        (1, lambda: member.heartbeat(topic_partitions=[])),
        (1, lambda: member.heartbeat(member_epoch=wrong)),
        (1, lambda: member.confirm(member_epoch=wrong)),
        (2, lambda: member.leave(-2 if member.instance else -1)),
        (1, member.leave),
        (3, lambda: member.commit({"t2": {chance.randrange(2): chance.randrange(99)}})),
        (1, lambda: member.commit({"t2": {0: 3}}, generation_id_or_member_epoch=wrong)),
    ]


def _looks(stage: Stage, chance: random.Random) -> list[Choice]:
    asks = Outsider(stage)
    return [
        (2, asks.describe),
        (2, asks.describe_consumers),
        (1, asks.list),
        (1, lambda: asks.fetch(None)),
        (1, asks.delete),
        (1, lambda: asks.commit({"t2": {0: 1}})),
        (1, lambda: asks.forget({"t2": [chance.randrange(2)], "t3": [0]})),
    ]
