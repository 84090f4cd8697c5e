"""The classic consumer group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A group exists once it has a record. If a JoinGroup without a member id names a group that does not
exist, the shard calls `create`, whose replayed record creates the group, and then `join`. If it has
a member id, the shard answers UNKNOWN_MEMBER_ID. `check_join` and `check_sync` run before the group
is looked up.
"""

from raylog.actors.group.rules.classic.checks import check_join, check_sync
from raylog.actors.group.rules.classic.group import ClassicGroup
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.metadata import create
from raylog.actors.group.rules.classic.state import State

__all__ = [
    "ClassicGroup",
    "Member",
    "State",
    "check_join",
    "check_sync",
    "create",
]
