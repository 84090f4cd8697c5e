"""What counts as reached, and what has no entry."""

from __future__ import annotations

from raylog.wire.api import ApiKey
from raylog.wire.error_codes import ErrorCode
from raylog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from raylog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from raylog.wire.messages.metadata import MetadataResponse
from tests.fuzz.tally import FAILURES_MAX, Failure, Tally, codes_of


def fetched(*codes: int) -> FetchResponse:
    parts = [PartitionData(error_code=code, aborted_transactions=None) for code in codes]
    return FetchResponse(responses=[FetchableTopicResponse(partitions=parts)])


def test_codes_of_parts_stand_for_the_whole() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes_of(ApiKey.FETCH, 12, fetched(unknown, 0)) == [unknown, 0]
    assert codes_of(ApiKey.FETCH, 12, FetchResponse()) == [0]
    refused = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert codes_of(ApiKey.FETCH, 12, refused) == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]


def test_fields_that_a_version_lacks_tell_nothing() -> None:
    assert codes_of(ApiKey.METADATA, 1, MetadataResponse()) == []
    answer = FindCoordinatorResponse(coordinators=[Coordinator(error_code=0)])
    assert codes_of(ApiKey.FIND_COORDINATOR, 4, answer) == [0]


def test_unknown_names_and_empty_answers_do_not_reach_rules() -> None:
    tally = Tally()
    tally.answered(ApiKey.FETCH, 4, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    tally.answered(ApiKey.FETCH, 4, [])
    tally.unanswered(ApiKey.FETCH, 4, "waits")
    tally.answered(ApiKey.FETCH, 4, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE])
    assert (tally.sent, tally.reached) == (4, 1)


def test_versions_without_an_entry_are_named() -> None:
    tally = Tally()
    tally.answered(ApiKey.FETCH, 4, [0])
    assert tally.missing({ApiKey.FETCH: range(4, 6)}) == ["FETCH v5"]


def test_failures_of_a_kind_are_counted_and_the_first_kept() -> None:
    tally = Tally()
    kept = [tally.fail(Failure(f"closed: {n}", n, ""), "FETCH") for n in range(5)]
    assert kept == [True, True, True, False, False]
    assert tally.failure_counts() == {"closed (FETCH)": 5}
    for n in range(2 * FAILURES_MAX):
        tally.fail(Failure(f"kind {n}", n, ""), "FETCH")
    assert len(tally.failures) == FAILURES_MAX
