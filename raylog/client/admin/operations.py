"""All admin operations, over one core."""

from __future__ import annotations

from raylog.client.admin.acls import AclAdmin
from raylog.client.admin.features import FeatureAdmin
from raylog.client.admin.groups import GroupAdmin
from raylog.client.admin.quotas import QuotaAdmin
from raylog.client.admin.replicas import ReplicaAdmin
from raylog.client.admin.tokens import TokenAdmin
from raylog.client.admin.topics import TopicAdmin
from raylog.client.admin.transactions import TransactionAdmin
from raylog.client.admin.users import UserAdmin


class AllOperations(
    TopicAdmin,
    GroupAdmin,
    ReplicaAdmin,
    TransactionAdmin,
    AclAdmin,
    QuotaAdmin,
    UserAdmin,
    TokenAdmin,
    FeatureAdmin,
):
    """The operations of `AsyncAdmin`; `Admin` offers them as blocking calls."""
