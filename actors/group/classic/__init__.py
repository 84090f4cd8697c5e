"""The classic consumer group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A group exists once a record says so. On a JoinGroup without a member id for a group that is not
there, the shard calls `create`, whose record makes it by replay, and then `join`; with a member id
it answers UNKNOWN_MEMBER_ID. `check_join` and `check_sync` come before the group is looked up.
"""

from raylog.actors.group.classic.checks import check_join, check_sync
from raylog.actors.group.classic.group import ClassicGroup
from raylog.actors.group.classic.members import Member
from raylog.actors.group.classic.metadata import create
from raylog.actors.group.classic.state import State

__all__ = [
    "ClassicGroup",
    "Member",
    "State",
    "check_join",
    "check_sync",
    "create",
]
