"""A pipeline's session without Spark: how its end is reported."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # it has no types

from raylog.raydp_jobs.pipelines import running
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.spec import SparkPart
from raylog.raydp_jobs.session import SessionOpen


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (ConnectionRefusedError("refused"), "Spark's JVM has ended"),
        (Py4JNetworkError("no answer"), "Spark's JVM has ended"),
        (SessionOpen("there is a session already"), "there is a session already"),
    ],
)
def test_ends_of_a_session_are_reported_in_words(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, says: str
) -> None:
    @contextmanager
    def broken(*_: object, **__: object) -> Iterator[None]:
        yield
        raise failure

    monkeypatch.setattr(running, "local_session", broken)
    with (
        pytest.raises(PipelineFailed, match=says),
        running.session_of("name", SparkPart()),
    ):
        pass
