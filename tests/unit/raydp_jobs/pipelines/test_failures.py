"""How Spark's failures are described to users."""

from __future__ import annotations

import pytest

from raylog.raydp_jobs.pipelines.failures import first_line

PYTHON = """
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "beside.py", line 2, in squared
    n * m
NameError: name 'm' is not defined
"""
JAVA = """Job aborted due to stage failure: Task 0 failed
\tat org.apache.spark.Some(Some.scala:1)
Caused by: java.lang.IllegalStateException: offsets are lost
\tat org.apache.spark.Other(Other.scala:2)
"""


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ValueError(PYTHON), "NameError: name 'm' is not defined"),
        (ValueError(JAVA), "offsets are lost"),
        (ValueError("[PARSE] no such column;\n'Project [x]"), "[PARSE] no such column"),
        (ValueError(""), "ValueError"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_one_line_of_a_failure(failure: BaseException, expected: str) -> None:
    assert first_line(failure) == expected
