"""Placeholders for a node's addresses."""

import re

import pytest

from raylog.actors.broker.links import read_links
from raylog.actors.broker.listeners import on_this_node, read_listeners
from raylog.actors.config import BrokerSettings
from raylog.actors.endpoints import Endpoint
from raylog.actors.node_hosts import EXTERNAL_HOST, NODE_HOST, fill
from raylog.actors.places import NodeEntry
from raylog.actors.roles import role_class
from raylog.actors.runtime.inproc import InprocWorld
from raylog.actors.runtime.link_settings import ANY_PORT, LinkPlace, LinkSettings
from raylog.wire.errors import InvalidConfig
from tests.worlds.decorators import in_loop

NODE = NodeEntry("n", "10.0.0.5", {"raylog-external-host": "label.example"})
BARE = NodeEntry("n", "10.0.0.5", {})


def external(node: NodeEntry = BARE, command: str | None = None, **environment: str) -> str:
    return fill(EXTERNAL_HOST, node, command, environment)


def test_the_label_comes_first_then_the_environment_then_the_command() -> None:
    assert external(NODE, "echo command", RAYLOG_EXTERNAL_HOST="variable") == "label.example"
    assert external(BARE, "echo command", RAYLOG_EXTERNAL_HOST=" variable ") == "variable"
    assert external(BARE, "echo command; echo told >&2") == "command"
    assert external(RAYLOG_EXTERNAL_HOST="[2001:db8::1]") == "2001:db8::1"


def test_the_address_of_the_node_and_other_hosts() -> None:
    assert fill(NODE_HOST, NODE, None, {}) == "10.0.0.5"
    assert fill("kafka.example", NODE, None, {}) == "kafka.example"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, "not known on the node 10.0.0.5: start Ray there with --labels raylog-external-h"),
        ("echo lost >&2; exit 3", "failed with exit code 3: echo lost >&2; exit 3: lost"),
        ("true", "the output of external.host.command must be a host name or an IP address, not"),
        ("echo a; echo b", "must be a host name or an IP address, not 'a\\nb'"),
        ("echo '<html>'", "must be a host name or an IP address, not '<html>'"),
    ],
)
def test_unknown_variable_or_invalid_host_is_refused(command: str | None, said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        external(command=command)


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.actors.node_hosts.COMMAND_TIMEOUT_S", 0.05)
    with pytest.raises(InvalidConfig, match=r"has not ended within 0\.05 s: sleep 60"):
        external(command="sleep 60")


def read(**hosts: str) -> BrokerSettings:
    return BrokerSettings(
        {
            "listeners": "IN://{node.host}:9092,OUT://:9093",
            "advertised.listeners": "IN://{node.host}:9092,OUT://{external.host}:19093",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            **{key.replace("_", "."): value for key, value in hosts.items()},
        }
    )


@in_loop
async def test_listeners_are_filled_where_the_broker_runs() -> None:
    runtime = InprocWorld(role_class).runtime()
    settings = read(external_host_command="echo out.example")
    listeners = await on_this_node(runtime, read_listeners(settings), settings)
    assert listeners.listening == (Endpoint("IN", "127.0.0.1", 9092), Endpoint("OUT", "", 9093))
    assert listeners.advertised[1] == Endpoint("OUT", "out.example", 19093)
    wildcard = read(external_host_command="echo 0.0.0.0")
    with pytest.raises(InvalidConfig, match="nonroutable meta-address"):
        await on_this_node(runtime, read_listeners(wildcard), wildcard)
    runtime.end(wait=False)


@pytest.mark.parametrize("host", ["{}", "{host}", "{EXTERNAL.HOST}", "{external.host", "${x}"])
def test_other_placeholders_are_refused(host: str) -> None:
    with pytest.raises(InvalidConfig, match="Error creating broker listeners"):
        read_listeners(BrokerSettings({"listeners": f"PLAINTEXT://{host}:1"}))


def test_links_have_a_bind_and_an_advertised_host_and_a_range_of_ports() -> None:
    assert read_links(BrokerSettings()) == LinkSettings()
    given = {
        "link.bind.host": "0.0.0.0",
        "link.advertised.host": "{external.host}",
        "link.port.range": "20000-20002",
    }
    links = read_links(BrokerSettings(given))
    assert links.on_node("10.0.0.5", lambda host: fill(host, NODE, None)) == LinkPlace(
        "0.0.0.0",
        "label.example",
        range(20_000, 20_003),
    )
    own = LinkSettings().on_node("10.0.0.5", lambda host: host)
    assert own == LinkPlace("10.0.0.5", "10.0.0.5", ANY_PORT)


@pytest.mark.parametrize("text", ["", "1", "5-4", "0-9", "1-65536", "a-b", "1-2-3", "1,2"])
def test_a_range_of_ports_has_a_first_and_a_last_one(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"link\.port\.range must look like 20000-20099, not"):
        read_links(BrokerSettings({"link.port.range": text}))
