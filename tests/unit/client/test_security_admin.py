"""ACLs, quotas, SCRAM users and delegation tokens with brokers in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from raylog.client import (
    ANY_NAME,
    DEFAULT_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    DelegationToken,
    InvalidSetting,
    NotKafka,
    NotSupported,
    PatternType,
    QuotaEntity,
    ResourcePattern,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from raylog.client.admin.acls import AclAdmin
from raylog.client.admin.quotas import QuotaAdmin
from raylog.client.admin.tokens import TokenAdmin
from raylog.client.admin.users import UserAdmin
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    DelegationTokenRequestNotAllowed,
    ErrorCode,
    InvalidRequest,
    ResourceNotFound,
    SecurityDisabled,
)
from raylog.wire.messages import alter_client_quotas as altered_quotas
from raylog.wire.messages import alter_user_scram_credentials as altered_users
from raylog.wire.messages import create_acls as created
from raylog.wire.messages import create_delegation_token as created_token
from raylog.wire.messages import delete_acls as deleted
from raylog.wire.messages import describe_acls as described
from raylog.wire.messages import describe_client_quotas as described_quotas
from raylog.wire.messages import describe_delegation_token as described_tokens
from raylog.wire.messages import describe_user_scram_credentials as described_users
from raylog.wire.messages import expire_delegation_token as expired_token
from raylog.wire.messages import renew_delegation_token as renewed_token
from tests.worlds.client.cluster import LOST, FakeCluster, core_of

READ_ORDERS = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "orders-", PatternType.PREFIXED),
    "User:ann",
    AclOperation.READ,
)


def one_request(cluster: FakeCluster, kind: type) -> object:
    (request,) = cluster.requests(kind)
    return request


class TestAcls:
    def test_a_filter_and_what_it_matches(self) -> None:
        resource = described.DescribeAclsResource(
            resource_type=2,
            resource_name="orders-",
            pattern_type=4,
            acls=[
                described.AclDescription(
                    principal="User:ann", host="*", operation=3, permission_type=3
                ),
                described.AclDescription(
                    principal="User:bob", host="10.0.0.1", operation=99, permission_type=99
                ),
            ],
        )
        newer = described.DescribeAclsResource(
            resource_type=99,
            resource_name="x",
            pattern_type=99,
            acls=[described.AclDescription(principal="User:ann", host="*")],
        )
        answers = [LOST, described.DescribeAclsResponse(resources=[resource, newer])]
        cluster = FakeCluster(handlers={ApiKey.DESCRIBE_ACLS: lambda *_: answers.pop(0)})
        which = AclFilter(AclResourceType.TOPIC, "orders-eu", PatternType.MATCH, "User:ann", "*")
        first, second, third = run_blocking(AclAdmin(core_of(cluster)).describe_acls(which))
        assert first == READ_ORDERS
        assert (second.operation, second.permission) == (
            AclOperation.UNKNOWN,
            AclPermission.UNKNOWN,
        )
        assert third.pattern == ResourcePattern(AclResourceType.UNKNOWN, "x", PatternType.UNKNOWN)
        assert cluster.requests(
            described.DescribeAclsRequest
        ) == 2 * [  # a lost answer: asked again
            described.DescribeAclsRequest(
                resource_type_filter=2,
                resource_name_filter="orders-eu",
                pattern_type_filter=2,
                principal_filter="User:ann",
                host_filter="*",
                operation=1,
                permission_type=1,
            )
        ]

    def test_without_a_filter_all_are_asked_for(self) -> None:
        answer = described.DescribeAclsResponse(error_code=54, error_message="No Authorizer")
        cluster = FakeCluster(handlers={ApiKey.DESCRIBE_ACLS: lambda *_: answer})
        with pytest.raises(SecurityDisabled, match="ACLs: No Authorizer"):
            run_blocking(AclAdmin(core_of(cluster)).describe_acls())
        assert one_request(cluster, described.DescribeAclsRequest) == described.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )

    def test_acls_are_created_and_the_first_refusal_is_raised(self) -> None:
        def create(_: int, request: object) -> created.CreateAclsResponse:
            assert isinstance(request, created.CreateAclsRequest)
            return created.CreateAclsResponse(
                results=[
                    created.AclCreationResult(
                        error_code=42 * (one.principal == "User:bob"), error_message="not he"
                    )
                    for one in request.creations
                ]
            )

        cluster = FakeCluster(handlers={ApiKey.CREATE_ACLS: create})
        admin = AclAdmin(core_of(cluster))
        run_blocking(admin.create_acls([READ_ORDERS]))
        assert one_request(cluster, created.CreateAclsRequest) == created.CreateAclsRequest(
            creations=[
                created.AclCreation(
                    resource_type=2,
                    resource_name="orders-",
                    resource_pattern_type=4,
                    principal="User:ann",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        )
        bad = AclBinding(READ_ORDERS.pattern, "User:bob", AclOperation.ALL, AclPermission.DENY)
        with pytest.raises(
            InvalidRequest,
            match=r"DENY ALL on TOPIC 'orders-' \(PREFIXED\) for User:bob from \*: not he",
        ):
            run_blocking(admin.create_acls([READ_ORDERS, bad]))

    def test_an_acl_says_exactly_what_it_is_about(self) -> None:
        admin = AclAdmin(core_of(FakeCluster()))
        bindings = {
            "resource type TOPIC.* found ANY": AclBinding(
                ResourcePattern(AclResourceType.ANY, "t"), "User:ann", AclOperation.READ
            ),
            "pattern type LITERAL, PREFIXED, found MATCH": AclBinding(
                ResourcePattern(AclResourceType.TOPIC, "t", PatternType.MATCH),
                "User:ann",
                AclOperation.READ,
            ),
            "operation ALL, READ.* found UNKNOWN": AclBinding(
                ResourcePattern(AclResourceType.TOPIC, "t"), "User:ann", AclOperation.UNKNOWN
            ),
            "permission DENY, ALLOW, found ANY": AclBinding(
                ResourcePattern(AclResourceType.TOPIC, "t"),
                "User:ann",
                AclOperation.READ,
                AclPermission.ANY,
            ),
        }
        for message, binding in bindings.items():
            with pytest.raises(InvalidSetting, match=message):
                run_blocking(admin.create_acls([binding]))
        unknown = AclFilter(permission=AclPermission.UNKNOWN)
        with pytest.raises(InvalidSetting, match="AclPermission ANY, DENY, ALLOW, found UNKNOWN"):
            run_blocking(admin.describe_acls(unknown))
        with pytest.raises(InvalidSetting, match="found UNKNOWN"):
            run_blocking(admin.delete_acls([AclFilter(), unknown]))

    def test_acl_deleted_by_several_filters_is_listed_once(self) -> None:
        match = deleted.DeleteAclsMatchingAcl(
            resource_type=2,
            resource_name="orders-",
            pattern_type=4,
            principal="User:ann",
            host="*",
            operation=3,
            permission_type=3,
        )
        result = deleted.DeleteAclsFilterResult(matching_acls=[match])
        response = deleted.DeleteAclsResponse(filter_results=[result, result])
        cluster = FakeCluster(handlers={ApiKey.DELETE_ACLS: lambda *_: response})
        admin = AclAdmin(core_of(cluster))
        filters = [AclFilter(principal="User:ann"), AclFilter(AclResourceType.TOPIC, "orders-")]
        assert run_blocking(admin.delete_acls(filters)) == [READ_ORDERS]
        with pytest.raises(NotKafka, match="expected 1 answers, found 2"):
            run_blocking(admin.delete_acls(filters[:1]))
        match.error_code, match.error_message = int(ErrorCode.UNKNOWN_SERVER_ERROR), "not today"
        with pytest.raises(Exception, match=r"ALLOW READ on TOPIC 'orders-' .*: not today"):
            run_blocking(admin.delete_acls(filters))
        result.error_code, result.error_message = 54, "No Authorizer"
        with pytest.raises(
            SecurityDisabled, match=r"ACLs of ANY ANY on ANY \(ANY\) for User:ann from ANY: No"
        ):
            run_blocking(admin.delete_acls(filters))

    def test_a_broker_without_acls(self) -> None:
        cluster = FakeCluster(newest={ApiKey.DESCRIBE_ACLS: -1})
        with pytest.raises(NotSupported, match="fake:9001 does not serve DESCRIBE_ACLS"):
            run_blocking(AclAdmin(core_of(cluster)).describe_acls())


class TestQuotas:
    def test_parts_of_a_filter(self) -> None:
        entity = described_quotas.EntityData
        entry = described_quotas.EntryData(
            entity=[
                entity(entity_type="user", entity_name="ann"),
                entity(entity_type="client-id", entity_name=None),
            ],
            values=[described_quotas.ValueData(key="producer_byte_rate", value=1e6)],
        )
        response = described_quotas.DescribeClientQuotasResponse(entries=[entry])
        cluster = FakeCluster(handlers={ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda *_: response})
        admin = QuotaAdmin(core_of(cluster))
        found = run_blocking(
            admin.describe_client_quotas(user="ann", client_id=ANY_NAME, strict=True)
        )
        assert found == {QuotaEntity("ann", DEFAULT_NAME): {"producer_byte_rate": 1e6}}
        run_blocking(admin.describe_client_quotas(ip=DEFAULT_NAME))
        part = described_quotas.ComponentData
        assert cluster.requests(described_quotas.DescribeClientQuotasRequest) == [
            described_quotas.DescribeClientQuotasRequest(
                components=[
                    part(entity_type="user", match_type=0, match="ann"),
                    part(entity_type="client-id", match_type=2, match=None),
                ],
                strict=True,
            ),
            described_quotas.DescribeClientQuotasRequest(
                components=[part(entity_type="ip", match_type=1, match=None)]
            ),
        ]
        entry.entity[0].entity_type = "planet"
        with pytest.raises(NotSupported, match=r"user, client-id, ip, found .* 'planet'"):
            run_blocking(admin.describe_client_quotas())

    def test_quotas_are_set_and_removed(self) -> None:
        def alter(_: int, request: object) -> altered_quotas.AlterClientQuotasResponse:
            assert isinstance(request, altered_quotas.AlterClientQuotasRequest)
            return altered_quotas.AlterClientQuotasResponse(
                entries=[
                    altered_quotas.ResponseEntryData(
                        error_code=0 if entry.entity else 42,
                        error_message=None if entry.entity else "empty",
                        entity=entry.entity,
                    )
                    for entry in request.entries
                ]
            )

        cluster = FakeCluster(handlers={ApiKey.ALTER_CLIENT_QUOTAS: alter})
        admin = QuotaAdmin(core_of(cluster))
        changes = {QuotaEntity("ann", DEFAULT_NAME): {"a": 5, "b": None}}
        run_blocking(admin.alter_client_quotas(changes, validate_only=True))
        entity = altered_quotas.EntityData
        asked = one_request(cluster, altered_quotas.AlterClientQuotasRequest)
        assert asked == altered_quotas.AlterClientQuotasRequest(
            entries=[
                altered_quotas.EntryData(
                    entity=[
                        entity(entity_type="user", entity_name="ann"),
                        entity(entity_type="client-id", entity_name=None),
                    ],
                    ops=[
                        altered_quotas.OpData(key="a", value=5, remove=False),
                        altered_quotas.OpData(key="b", value=0, remove=True),
                    ],
                )
            ],
            validate_only=True,
        )
        with pytest.raises(InvalidRequest, match="quotas of nobody: empty"):
            run_blocking(admin.alter_client_quotas({QuotaEntity(): {"a": 1}}))


class TestUsers:
    def test_the_client_salts_and_hashes(self) -> None:
        cluster = FakeCluster(
            handlers={
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda *_: (
                    altered_users.AlterUserScramCredentialsResponse(
                        results=[
                            altered_users.AlterUserScramCredentialsResult(user=user)
                            for user in ("ann", "bob", "eve", "zoe")
                        ]
                    )
                )
            }
        )
        upsertions = [
            ScramUpsertion("ann", ScramMechanism.SCRAM_SHA_512, "sécret", 16_384, b"salt"),
            ScramUpsertion("bob", ScramMechanism.SCRAM_SHA_256, "secret"),
            ScramUpsertion("eve", ScramMechanism.SCRAM_SHA_256, "secret"),
        ]
        deletion = ScramDeletion("zoe", ScramMechanism.SCRAM_SHA_256)
        admin = UserAdmin(core_of(cluster))
        run_blocking(admin.alter_user_scram_credentials([*upsertions, deletion]))
        asked = one_request(cluster, altered_users.AlterUserScramCredentialsRequest)
        assert isinstance(asked, altered_users.AlterUserScramCredentialsRequest)
        assert asked.deletions == [altered_users.ScramCredentialDeletion(name="zoe", mechanism=1)]
        ann, bob, eve = asked.upsertions
        assert (ann.name, ann.mechanism, ann.iterations) == ("ann", 2, 16_384)
        expected = hashlib.pbkdf2_hmac("sha512", "sécret".encode(), b"salt", 16_384)
        assert (bytes(ann.salt), bytes(ann.salted_password)) == (b"salt", expected)
        assert (bob.mechanism, bob.iterations, len(bob.salt)) == (1, 4_096, 32)
        assert bytes(bob.salt) != bytes(eve.salt)
        expected = hashlib.pbkdf2_hmac("sha256", b"secret", bytes(bob.salt), 4_096)
        assert bytes(bob.salted_password) == expected
        assert "secret" not in repr(upsertions)

    @pytest.mark.parametrize("iterations", [0, 4_095, 16_385])
    def test_iterations_that_no_broker_takes(self, iterations: int) -> None:
        with pytest.raises(InvalidSetting, match=f"4096 to 16384 iterations, found {iterations}"):
            ScramUpsertion("ann", ScramMechanism.SCRAM_SHA_256, "secret", iterations)

    def test_scram_upsertion_requires_a_password_and_a_mechanism(self) -> None:
        with pytest.raises(InvalidSetting, match="expected a password for user 'ann', found none"):
            ScramUpsertion("ann", ScramMechanism.SCRAM_SHA_256, "")
        with pytest.raises(InvalidSetting, match="SCRAM_SHA_256 or SCRAM_SHA_512, found UNKNOWN"):
            ScramUpsertion("ann", ScramMechanism.UNKNOWN, "secret")

    def test_users_are_described(self) -> None:
        info = described_users.CredentialInfo
        result = described_users.DescribeUserScramCredentialsResult(
            user="ann",
            credential_infos=[info(mechanism=7, iterations=1), info(mechanism=2, iterations=8_192)],
        )
        answer = described_users.DescribeUserScramCredentialsResponse(results=[result])
        cluster = FakeCluster(handlers={ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda *_: answer})
        admin = UserAdmin(core_of(cluster))
        assert run_blocking(admin.describe_user_scram_credentials([])) == {}
        assert cluster.seen == []
        found = run_blocking(admin.describe_user_scram_credentials())
        assert found == {
            "ann": [
                ScramCredential(ScramMechanism.SCRAM_SHA_512, 8_192),
                ScramCredential(ScramMechanism.UNKNOWN, 1),
            ]
        }
        result.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
        with pytest.raises(ResourceNotFound, match="user 'ann'"):
            run_blocking(admin.describe_user_scram_credentials(["ann"]))
        everyone, ann = cluster.requests(described_users.DescribeUserScramCredentialsRequest)
        assert isinstance(everyone, described_users.DescribeUserScramCredentialsRequest)
        assert isinstance(ann, described_users.DescribeUserScramCredentialsRequest)
        assert everyone.users is None
        assert ann.users == [described_users.UserName(name="ann")]


class TestTokens:
    def test_a_token_from_its_creation_to_its_end(self) -> None:
        answers: dict[ApiKey, object] = {
            ApiKey.CREATE_DELEGATION_TOKEN: created_token.CreateDelegationTokenResponse(
                principal_type="User",
                principal_name="ann",
                token_requester_principal_type="User",
                token_requester_principal_name="root",
                issue_timestamp_ms=1,
                expiry_timestamp_ms=2,
                max_timestamp_ms=3,
                token_id="id",
                hmac=b"secret",
            ),
            ApiKey.DESCRIBE_DELEGATION_TOKEN: described_tokens.DescribeDelegationTokenResponse(
                tokens=[
                    described_tokens.DescribedDelegationToken(
                        principal_type="User",
                        principal_name="ann",
                        token_requester_principal_type="User",
                        token_requester_principal_name="root",
                        issue_timestamp=1,
                        expiry_timestamp=2,
                        max_timestamp=3,
                        token_id="id",
                        hmac=b"secret",
                        renewers=[
                            described_tokens.DescribedDelegationTokenRenewer(
                                principal_type="User", principal_name="bob"
                            )
                        ],
                    )
                ]
            ),
            ApiKey.RENEW_DELEGATION_TOKEN: renewed_token.RenewDelegationTokenResponse(
                expiry_timestamp_ms=8
            ),
            ApiKey.EXPIRE_DELEGATION_TOKEN: expired_token.ExpireDelegationTokenResponse(
                expiry_timestamp_ms=9
            ),
        }

        def handler(answer: object) -> object:
            return lambda *_: answer

        cluster = FakeCluster(handlers={key: handler(one) for key, one in answers.items()})  # type: ignore[misc]  # a lambda of anything
        admin = TokenAdmin(core_of(cluster))
        expected = DelegationToken("id", b"secret", "User:ann", "User:root", ("User:bob",), 1, 2, 3)
        token = run_blocking(
            admin.create_delegation_token(
                owner="User:ann", renewers=["User:bob"], max_lifetime_ms=3
            )
        )
        assert token == expected
        assert "secret" not in repr(token)
        assert run_blocking(admin.describe_delegation_tokens(["User:ann"])) == [expected]
        assert run_blocking(admin.renew_delegation_token(b"secret", 7)) == 8
        assert run_blocking(admin.expire_delegation_token(b"secret")) == 9
        request = one_request(cluster, created_token.CreateDelegationTokenRequest)
        assert request == created_token.CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="ann",
            renewers=[created_token.CreatableRenewers(principal_type="User", principal_name="bob")],
            max_lifetime_ms=3,
        )
        request = one_request(cluster, expired_token.ExpireDelegationTokenRequest)
        assert request == expired_token.ExpireDelegationTokenRequest(
            hmac=b"secret", expiry_time_period_ms=-1
        )

    def test_refused_token_request_raises(self) -> None:
        refused = created_token.CreateDelegationTokenResponse(
            error_code=int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        )
        cluster = FakeCluster(handlers={ApiKey.CREATE_DELEGATION_TOKEN: lambda *_: refused})
        admin = TokenAdmin(core_of(cluster))
        with pytest.raises(DelegationTokenRequestNotAllowed):
            run_blocking(admin.create_delegation_token())
        with pytest.raises(InvalidSetting, match="such as 'User:ann', found 'ann'"):
            run_blocking(admin.create_delegation_token(renewers=["ann"]))
        cluster = FakeCluster(newest={ApiKey.CREATE_DELEGATION_TOKEN: 2})
        admin = TokenAdmin(core_of(cluster))
        with pytest.raises(NotSupported, match="too old to create tokens for another owner"):
            run_blocking(admin.create_delegation_token(owner="User:ann"))


WRONG: Any = "wrong"


def untyped(kind: Callable[[Core], object], core: Core) -> Any:
    """An admin that a type checker lets be called with anything."""
    return kind(core)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda core: untyped(AclAdmin, core).create_acls(READ_ORDERS),
            TypeError,
            r"expected a list of AclBinding, found AclBinding\(.* alone",
        ),
        (
            lambda core: untyped(AclAdmin, core).create_acls(["x"]),
            TypeError,
            "expected AclBinding, found 'x'",
        ),
        (
            lambda core: untyped(AclAdmin, core).create_acls(
                [replace(READ_ORDERS, principal="ann")]
            ),
            InvalidSetting,
            "expected a principal such as 'User:ann', found 'ann'",
        ),
        (
            lambda core: untyped(AclAdmin, core).create_acls(
                [replace(READ_ORDERS, operation=WRONG)]
            ),
            InvalidSetting,
            "expected an ACL with operation ALL, READ, .*found 'wrong'",
        ),
        (
            lambda core: untyped(AclAdmin, core).describe_acls(AclFilter(principal="ann")),
            InvalidSetting,
            "expected a principal such as 'User:ann', found 'ann'",
        ),
        (
            lambda core: untyped(AclAdmin, core).describe_acls("User:ann"),
            TypeError,
            "expected AclFilter, found 'User:ann'",
        ),
        (
            lambda core: untyped(AclAdmin, core).delete_acls([AclFilter(operation=WRONG)]),
            InvalidSetting,
            "one of AclOperation ANY, .*, found 'wrong'",
        ),
        (
            lambda core: untyped(QuotaAdmin, core).alter_client_quotas(
                {"ann": {"producer_byte_rate": 1}}
            ),
            TypeError,
            "expected QuotaEntity, found 'ann'",
        ),
        (
            lambda core: untyped(QuotaAdmin, core).alter_client_quotas(
                {QuotaEntity(): {"r": float("nan")}}
            ),
            InvalidSetting,
            "expected quota r to be a number, or None, found nan",
        ),
        (
            lambda core: untyped(QuotaAdmin, core).alter_client_quotas(
                {QuotaEntity(user=cast("Any", ANY_NAME)): {}}
            ),
            InvalidSetting,
            "expected user of a quota to be a name or DEFAULT_NAME, found",
        ),
        (
            lambda core: untyped(UserAdmin, core).alter_user_scram_credentials(["ann"]),
            TypeError,
            "expected ScramUpsertion or ScramDeletion, found 'ann'",
        ),
        (
            lambda core: untyped(TokenAdmin, core).describe_delegation_tokens("User:ann"),
            TypeError,
            "expected a list of owners, found 'User:ann' alone",
        ),
        (
            lambda core: untyped(TokenAdmin, core).create_delegation_token(renewers="User:ann"),
            TypeError,
            "expected a list of renewers, found 'User:ann' alone",
        ),
        (
            lambda core: untyped(TokenAdmin, core).renew_delegation_token("c2VjcmV0"),
            TypeError,
            "expected a token's hmac, which is bytes, found str",
        ),
    ],
)
def test_arguments_that_make_no_sense(
    call: Callable[[Any], Coroutine[object, object, object]], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run_blocking(call(core_of(FakeCluster())))


def test_a_mechanism_by_its_name() -> None:
    name: Any = "SCRAM-SHA-256"
    for make in (lambda: ScramDeletion("ann", name), lambda: ScramUpsertion("ann", name, "secret")):
        with pytest.raises(InvalidSetting, match="SCRAM_SHA_512, found 'SCRAM-SHA-256'"):
            make()
