"""Error codes are found wherever a response has them."""

from __future__ import annotations

import pytest

from raylog.actors.metrics.errors import ErrorCounts, api_name, codes_in
from raylog.actors.metrics.families.gateway import ERRORS
from raylog.actors.metrics.samples import Samples
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.api_versions import ApiVersionsResponse
from raylog.wire.messages.describe_cluster import DescribeClusterResponse
from raylog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from raylog.wire.messages.registry import response_class
from raylog.wire.schema import layout_of

FENCED = int(ErrorCode.FENCED_LEADER_EPOCH)
LATE = int(ErrorCode.REQUEST_TIMED_OUT)


def produced(*codes: int) -> ProduceResponse:
    answers = [PartitionProduceResponse(index=n, error_code=code) for n, code in enumerate(codes)]
    topics = [TopicProduceResponse(name="t", partition_responses=[one]) for one in answers]
    return ProduceResponse(responses=topics)


def test_codes_of_the_whole_answer_and_of_its_parts_are_found() -> None:
    assert codes_in(produced(0, FENCED, 0, LATE, LATE)) == [FENCED, LATE, LATE]
    assert codes_in(produced(0, 0)) == []
    assert codes_in(DescribeClusterResponse(error_code=LATE)) == [LATE]
    assert codes_in(ApiVersionsResponse(error_code=35)) == [35]


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_every_answer_can_be_looked_through(api_key: ApiKey) -> None:
    try:
        kind = response_class(api_key)
    except KeyError:
        pytest.skip("Raylog has no such message")
    assert layout_of(kind).api_key == api_key
    assert codes_in(kind()) == []


def test_each_api_and_code_has_one_series() -> None:
    errors = ErrorCounts()
    errors.answered(ApiKey.PRODUCE, produced(FENCED, LATE))
    errors.answered(ApiKey.PRODUCE, produced(LATE, 0))
    errors.add(ApiKey.FETCH, [LATE])
    samples = Samples()
    errors.sample(samples)
    assert sorted(samples.taken) == [
        (ERRORS.name, ("Fetch", "REQUEST_TIMED_OUT"), 1),
        (ERRORS.name, ("Produce", "FENCED_LEADER_EPOCH"), 1),
        (ERRORS.name, ("Produce", "REQUEST_TIMED_OUT"), 2),
    ]


def test_apis_are_named_as_kafka_names_them() -> None:
    assert api_name(ApiKey.OFFSET_FOR_LEADER_EPOCH) == "OffsetForLeaderEpoch"
    assert len({api_name(key) for key in ApiKey}) == len(ApiKey)
