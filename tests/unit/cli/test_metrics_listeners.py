"""Where the brokers of a cluster serve their metrics."""

from __future__ import annotations

import re

import pytest

from raylog.cli.metrics_listeners import address_of, find_metrics_listeners
from raylog.client import Admin, ClientSettings, InvalidSetting, Resource, ResourceType
from raylog.client.settings import parse_bootstrap
from raylog.testing import EmbeddedBroker
from tests.support.scraping import scrape

FREE = {"health.listener": "127.0.0.1:0"}


def test_brokers_report_the_ports_that_they_have_bound() -> None:
    with EmbeddedBroker(brokers=2, settings=FREE, first_broker_id=4) as cluster:
        found = find_metrics_listeners(ClientSettings(parse_bootstrap(cluster.bootstrap)))
        assert [f"http://{host}:{port}/metrics" for host, port in found.values()] == (
            cluster.metrics_urls
        )
        assert list(found) == [4, 5]
        for broker, (host, port) in found.items():
            scraped = scrape(f"http://{host}:{port}/metrics")
            assert scraped.total("raylog_broker_info", broker=str(broker)) == 1


def test_the_setting_is_read_only_and_has_the_bound_port() -> None:
    with EmbeddedBroker(settings=FREE) as cluster, Admin(cluster.bootstrap) as admin:
        entries = admin.describe_configs(Resource(ResourceType.BROKER, "0"))
        (entry,) = (one for one in entries if one.name == "health.listener")
        assert f"http://{entry.value}/metrics" == cluster.metrics_urls[0]
        assert entry.read_only


def test_brokers_without_the_setting_are_left_out() -> None:
    with EmbeddedBroker() as cluster:
        assert find_metrics_listeners(ClientSettings(parse_bootstrap(cluster.bootstrap))) == {}


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("10.0.0.5:8080", ("10.0.0.5", 8080)),
        ("0.0.0.0:8080", ("broker", 8080)),
        ("[::]:8080", ("broker", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        (":8080", ("broker", 8080)),
        ("127.0.0.1:0", None),
        ("127.0.0.1:70000", None),
        ("foo:bar:9", None),
        ("", None),
        ("8080", ("broker", 8080)),
    ],
)
def test_where_a_listener_is_reached(listener: str, expected: object) -> None:
    assert address_of(listener, "broker") == expected


@pytest.mark.parametrize("text", ["foo:bar:9", "::1", "[foo]:9", "a/b:9"])
def test_invalid_bootstrap_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"expected host:port, found {text!r}")):
        parse_bootstrap(text)
