"""Finalized feature levels, and a new cluster's first records."""

import random

import pytest

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import (
    FeatureOutcome,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.machine import ControllerMachine
from raylog.actors.metadata.features import finalized
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    ClusterNamed,
    FeatureChanged,
    LeaderChanged,
    VotersChanged,
)
from raylog.actors.metadata.terms import NONCE_END
from raylog.wire.errors import ErrorCode
from raylog.wire.uuids import random_uuid, to_base64
from tests.worlds.controller.machine import Controlled

NAME = "metadata.version"
SAFE = FeatureUpgradeType.SAFE_DOWNGRADE


def test_a_new_cluster_begins_with_its_name_its_voters_and_its_features() -> None:
    machine = ControllerMachine("c", BrokerSettings(), random.Random(1))
    first = machine.took_over(3, ((0, "d"),), 0)
    chance = random.Random(1)
    nonce, metadata_id = chance.randrange(1, NONCE_END), to_base64(random_uuid(chance))
    assert first == [
        LeaderChanged(3, nonce=nonce),
        ClusterNamed("c", metadata_id),
        VotersChanged(((0, "d"),)),
        FeatureChanged(NAME, 30, 0),
        FeatureChanged("eligible.leader.replicas.version", 1, 1),
        FeatureChanged("transaction.version", 2, 2),
        FeatureChanged("group.version", 1, 3),
        FeatureChanged("kraft.version", 1, 4),
    ]
    machine.replay(first)
    assert machine.took_over(4, ((0, "d"),), 0) == [
        LeaderChanged(4, nonce=chance.randrange(1, NONCE_END))
    ]


def test_metadata_that_an_older_build_made_is_given_an_id_once() -> None:
    machine = ControllerMachine("c", BrokerSettings(), random.Random(1))
    machine.replay([LeaderChanged(3), ClusterNamed("c"), VotersChanged(((0, "d"),))])
    first = machine.took_over(4, ((0, "d"),), 0)
    chance = random.Random(1)
    nonce, metadata_id = chance.randrange(1, NONCE_END), to_base64(random_uuid(chance))
    assert first == [LeaderChanged(4, nonce=nonce), ClusterNamed("c", metadata_id)]
    machine.replay(first)
    assert [type(one) for one in machine.took_over(5, ((0, "d"),), 0)] == [LeaderChanged]


def test_a_level_goes_down_if_that_is_said_and_up_again() -> None:
    world = Controlled()
    down = world.machine.features.update(UpdateFeatures([FeatureUpdate(NAME, 29, SAFE)]))
    assert down == Decision([FeatureChanged(NAME, 29, 5)], [FeatureOutcome(NAME)])
    world.carry(down)
    up = world.machine.features.update(UpdateFeatures([FeatureUpdate(NAME, 30)]))
    assert up == Decision([FeatureChanged(NAME, 30, 6)], [FeatureOutcome(NAME)])
    world.carry(up)
    again = world.machine.features.update(UpdateFeatures([FeatureUpdate(NAME, 30)]))
    assert again == Decision([], [FeatureOutcome(NAME)])


def test_a_feature_can_be_removed() -> None:
    world = Controlled()
    removal = FeatureUpdate("eligible.leader.replicas.version", 0, SAFE)
    decision = world.machine.features.update(UpdateFeatures([removal]))
    world.carry(decision)
    others = {
        NAME: 30,
        "transaction.version": 2,
        "group.version": 1,
        "kraft.version": 1,
    }
    assert (finalized(world.image.features), world.image.features_epoch) == (others, 5)


def test_a_feature_that_an_older_build_had_without_knowing_it_stays_in_use() -> None:
    machine = ControllerMachine("c", BrokerSettings(), random.Random(1))
    machine.replay([LeaderChanged(3), ClusterNamed("c"), FeatureChanged(NAME, 30, 0)])
    assert finalized(machine.image.features) == {NAME: 30, "group.version": 1, "kraft.version": 1}
    same = machine.features.update(UpdateFeatures([FeatureUpdate("group.version", 1)]))
    assert same == Decision([], [FeatureOutcome("group.version")])
    down = machine.features.update(UpdateFeatures([FeatureUpdate("group.version", 0, SAFE)]))
    assert down.records == [FeatureChanged("group.version", 0, 1)]
    machine.replay(down.records)
    assert finalized(machine.image.features) == {NAME: 30, "kraft.version": 1}
    snapshot = machine.image.snapshot()
    restored = MetadataImage()
    restored.apply_update(-1, snapshot.offset, snapshot)
    assert finalized(restored.features) == {NAME: 30, "kraft.version": 1}


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (FeatureUpdate("other", 1), "does not support this feature"),
        (FeatureUpdate(NAME, 31), "Only versions 7-30 are supported"),
        (FeatureUpdate(NAME, 6, SAFE), "Only versions 7-30 are supported"),
        (FeatureUpdate(NAME, 0, SAFE), "Only versions 7-30 are supported"),
        (FeatureUpdate("kraft.version", 0, SAFE), "Only versions 1-1 are supported"),
        (FeatureUpdate(NAME, 29), "Can't downgrade the version"),
    ],
)
def test_impossible_levels_are_refused_and_take_the_rest_with_them(
    update: FeatureUpdate, said: str
) -> None:
    world = Controlled()
    fine = FeatureUpdate(NAME, 29, SAFE)
    decision = world.machine.features.update(UpdateFeatures([fine, update]))
    assert decision.records == []
    assert [outcome.error for outcome in decision.response] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert said in str(decision.response[1].message)


def test_an_upgrade_is_no_downgrade() -> None:
    world = Controlled()
    world.carry(world.machine.features.update(UpdateFeatures([FeatureUpdate(NAME, 29, SAFE)])))
    decision = world.machine.features.update(UpdateFeatures([FeatureUpdate(NAME, 30, SAFE)]))
    assert decision.response[0].error is ErrorCode.INVALID_UPDATE_VERSION


def test_only_to_see_changes_nothing() -> None:
    world = Controlled()
    asked = UpdateFeatures([FeatureUpdate(NAME, 29, SAFE)], validate_only=True)
    assert world.machine.features.update(asked) == Decision([], [FeatureOutcome(NAME)])


def test_an_older_cluster_keeps_its_transactions_until_somebody_upgrades_them() -> None:
    machine = ControllerMachine("c", BrokerSettings(), random.Random(1))
    machine.replay([LeaderChanged(3), ClusterNamed("c"), FeatureChanged(NAME, 30, 0)])
    taken_over = machine.took_over(4, ((0, "d"),), 0)
    assert not [one for one in taken_over if isinstance(one, FeatureChanged)]
    upgrade = UpdateFeatures([FeatureUpdate("transaction.version", 2)])
    assert machine.features.update(upgrade).records == [FeatureChanged("transaction.version", 2, 1)]
