"""If machines cannot be created, the error gives the reason."""

from __future__ import annotations

import pytest

from tests.machines.namespaces import TOOLS, what_is_missing
from tests.machines.steps import STEPS, chosen


def test_nothing_is_missing_for_root_with_all_tools() -> None:
    assert what_is_missing(0, lambda tool: f"/usr/bin/{tool}") is None


def test_another_user_is_told_to_be_root() -> None:
    problem = what_is_missing(1000, lambda tool: tool)
    assert problem is not None
    assert "as root, not as user 1000" in problem


def test_packages_of_missing_tools_are_named_once() -> None:
    gone = {"ssh", "ssh-keygen", "rsync"}
    problem = what_is_missing(0, lambda tool: None if tool in gone else tool)
    assert problem is not None
    assert problem.endswith("apt-get install openssh-client rsync")
    assert gone <= set(TOOLS)


def test_steps_run_in_the_order_of_the_table() -> None:
    assert chosen("down,up") == ["up", "down"]
    assert chosen(",".join(STEPS)) == list(STEPS)


def test_an_unknown_step_is_named() -> None:
    with pytest.raises(ValueError, match="no step is called dwon; there are up,"):
        chosen("up,dwon")
