"""What Python workers find on their path."""

import sys

import pytest

from raylog.raydp_jobs.worker_daemon import leave_archives

ARCHIVES = ["/s/pyspark.zip", "/s/py4j-0.10.9.7-src.zip", "/s/spark-core_2.12-3.5.7.jar"]


def test_sparks_archives_go_and_the_users_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [*sys.path, "/u/mine.zip"]
    monkeypatch.setattr(sys, "path", [*ARCHIVES, *others])
    monkeypatch.setattr("raylog.raydp_jobs.worker_daemon.find_spec", lambda _: object())
    leave_archives()
    assert sys.path == others


def test_they_stay_where_pyspark_is_in_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [*ARCHIVES, *sys.path]
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.setattr("raylog.raydp_jobs.worker_daemon.find_spec", lambda _: None)
    leave_archives()
    assert sys.path == before
