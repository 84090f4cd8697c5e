"""The simulation ends coordinators at the places at which tests do, one by one."""

from raylog.actors.simulation.transactions.faults import FAILPOINTS
from tests.unit.transaction.test_failpoints import ABORT, COMMIT, COMMON


def test_no_place_is_left_out() -> None:
    assert set(FAILPOINTS) == {*COMMON, *COMMIT, *ABORT}
