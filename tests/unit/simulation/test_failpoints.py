"""The simulation kills coordinators at the same failpoints as the tests, one by one."""

from raylog.simulation.transactions.faults import FAILPOINTS
from tests.unit.actors.transaction.test_failpoints import ABORT, COMMIT, COMMON


def test_failpoint_table_is_complete() -> None:
    assert set(FAILPOINTS) == {*COMMON, *COMMIT, *ABORT}
