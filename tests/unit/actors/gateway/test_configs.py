"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    ConfigAlteration,
    ConfigOp,
    ConfigOutcome,
)
from raylog.actors.metadata.records import ConfigChanged
from raylog.wire.errors import ErrorCode
from raylog.wire.messages import alter_configs as replacing
from raylog.wire.messages import incremental_alter_configs as incremental
from raylog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from raylog.wire.messages.list_config_resources import ConfigResource, ListConfigResourcesRequest
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, never, run
from tests.worlds.runtime import settle

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def describe(
    kind: int, name: str, keys: list[str] | None = None, **more: bool
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], **more)


async def described(world: World, request: Any, version: int = 4) -> DescribeConfigsResult:
    (result,) = (await world.client().ask(request, version)).results
    assert isinstance(result, DescribeConfigsResult)
    return result


@in_world(run)
async def test_a_brokers_loggers_and_their_levels(world: World) -> None:
    name = "raylog.actors.gateway.connection"
    logging.getLogger(name).setLevel(logging.WARNING)
    try:
        whole = await described(world, describe(LOGGER, "1"))
        one = await described(world, describe(LOGGER, "1", [name]))
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)
    levels = {config.name: config.value for config in whole.configs}
    assert levels["root"] in {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    assert one.configs == [
        DescribeConfigsResourceResult(name=name, value="WARN", config_source=6, documentation="")
    ]
    assert name in levels


@in_world(run)
async def test_levels_of_loggers_cannot_be_changed_and_the_answer_says_so(world: World) -> None:
    config = incremental.AlterableConfig(name="root", config_operation=0, value="INFO")
    resource = incremental.AlterConfigsResource(
        resource_type=LOGGER, resource_name="1", configs=[config]
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    ((answer,),) = [(await world.client().ask(request, 1)).responses]
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "cannot be changed" in answer.error_message


@in_world(run)
async def test_a_subscription_to_clients_metrics(world: World) -> None:
    await world.apply(ConfigChanged(METRICS, "m", "interval.ms", "5000"))
    result = await described(world, describe(METRICS, "m"))
    values = {one.name: (one.value, one.config_source) for one in result.configs}
    assert values == {"interval.ms": ("5000", 7), "match": ("", 5), "metrics": ("", 5)}


@pytest.mark.parametrize("version", range(1, 5))
@in_world(run)
async def test_a_topics_setting_with_all_that_can_be_reported_of_it(
    world: World, *, version: int
) -> None:
    await world.topic("t")
    await world.apply(
        ConfigChanged(TOPIC, "t", "retention.ms", "1000"),
        ConfigChanged(BROKER, "", "log.retention.ms", "2000"),
        ConfigChanged(BROKER, "1", "log.retention.ms", "3000"),
    )
    late = version >= 3
    request = describe(
        TOPIC, "t", ["retention.ms"], include_synonyms=True, include_documentation=late
    )
    result = await described(world, request, version)
    (config,) = result.configs
    assert bool(config.documentation) == late
    config.documentation = None
    assert config == DescribeConfigsResourceResult(
        name="retention.ms",
        value="1000",
        config_source=1,
        config_type=5 if late else 0,
        documentation=None,
        synonyms=[
            DescribeConfigsSynonym(name="retention.ms", value="1000", source=1),
            DescribeConfigsSynonym(name="log.retention.ms", value="3000", source=2),
            DescribeConfigsSynonym(name="log.retention.ms", value="2000", source=3),
            DescribeConfigsSynonym(name="log.retention.hours", value="168", source=5),
        ],
    )
    assert (result.error_code, result.error_message) == (0, "")


@in_world(run)
async def test_keys_that_are_unknown_are_passed_over_and_none_named_means_all(world: World) -> None:
    await world.topic("t")
    some = await described(world, describe(TOPIC, "t", ["nope", "segment.ms"]))
    assert [config.name for config in some.configs] == ["segment.ms"]
    assert some.configs[0].synonyms == []
    assert some.configs[0].documentation is None
    every = await described(world, describe(TOPIC, "t", None))
    assert every == await described(world, describe(TOPIC, "t", []))
    assert {"retention.ms", "cleanup.policy"} <= {config.name for config in every.configs}


@in_world(run, num_partitions="6")
async def test_a_broker_describes_itself_and_the_defaults_of_all(world: World) -> None:
    await world.apply(ConfigChanged(BROKER, "", "log.segment.bytes", "7000000"))
    own = await described(world, describe(BROKER, "1", ["num.partitions", "log.segment.bytes"]))
    found = {c.name: (c.value, c.config_source, c.read_only) for c in own.configs}
    assert found == {
        "num.partitions": ("6", 4, True),
        "log.segment.bytes": ("7000000", 3, False),
    }
    for_all = await described(world, describe(BROKER, ""))
    assert [(c.name, c.value, c.config_source) for c in for_all.configs] == [
        ("log.segment.bytes", "7000000", 3)
    ]
    assert (await described(world, describe(BROKER, "", ["num.partitions"]))).configs == []


@in_world(run)
async def test_a_groups_settings(world: World) -> None:
    await world.apply(ConfigChanged(GROUP, "g", "consumer.session.timeout.ms", "50000"))
    result = await described(world, describe(GROUP, "g", ["consumer.session.timeout.ms"]))
    assert [(c.value, c.config_source) for c in result.configs] == [("50000", 8)]


@pytest.mark.parametrize(
    ("kind", "name", "expected", "message"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name"),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "expected 1"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "must be an integer"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "must not be empty"),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST, "expected 1 but received 2"),
        (METRICS, "", ErrorCode.INVALID_REQUEST, "must not be empty"),
        (3, "x", ErrorCode.INVALID_REQUEST, "malformed"),
    ],
)
@in_world(run)
async def test_resources_that_cannot_be_described(
    world: World, *, kind: int, name: str, expected: ErrorCode, message: str
) -> None:
    result = await described(world, describe(kind, name))
    assert (result.error_code, result.resource_type, result.resource_name) == (
        expected,
        kind,
        name,
    )
    assert result.error_message is not None
    assert message in result.error_message
    assert result.configs == []


# ---- change ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@in_world(run)
async def test_alter_configs_replaces(world: World, *, version: int) -> None:
    world.controller.script["alter_configs"] = lambda _asked: [
        ConfigOutcome(TOPIC, "t"),
        ConfigOutcome(TOPIC, "u", ErrorCode.INVALID_CONFIG, "no such key"),
    ]
    configs = [
        replacing.AlterableConfig(name="a", value="1"),
        replacing.AlterableConfig(name="b", value=None),
    ]
    resources = [
        replacing.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs),
        replacing.AlterConfigsResource(resource_type=TOPIC, resource_name="u"),
    ]
    request = replacing.AlterConfigsRequest(resources=resources, validate_only=True)
    answer = await world.client().ask(request, version)
    ops = [ConfigOp("a", AlterOp.SET, "1"), ConfigOp("b", AlterOp.SET, None)]
    assert world.controller.asked == [
        (
            "alter_configs",
            AlterConfigs(
                [
                    ConfigAlteration(TOPIC, "t", ops, replaces=True),
                    ConfigAlteration(TOPIC, "u", [], replaces=True),
                ],
                validate_only=True,
            ),
        )
    ]
    assert [(r.error_code, r.error_message, r.resource_name) for r in answer.responses] == [
        (0, None, "t"),
        (ErrorCode.INVALID_CONFIG, "no such key", "u"),
    ]


@pytest.mark.parametrize("version", range(2))
@in_world(run)
async def test_incremental_alter_configs(world: World, *, version: int) -> None:
    world.controller.script["alter_configs"] = lambda asked: [
        ConfigOutcome(one.resource_type, one.resource_name) for one in asked.alterations
    ]
    good = [
        incremental.AlterableConfig(name=f"k{op}", config_operation=op, value="1")
        for op in range(4)
    ]
    bad = [incremental.AlterableConfig(name="k", config_operation=4, value="1")]
    resources = [
        incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=ops)
        for name, ops in (("bad", bad), ("good", good))
    ]
    answer = await world.client().ask(
        incremental.IncrementalAlterConfigsRequest(resources=resources), version
    )
    ops = [ConfigOp(f"k{op}", op, "1") for op in AlterOp]
    assert world.controller.asked == [
        ("alter_configs", AlterConfigs([ConfigAlteration(TOPIC, "good", ops)]))
    ]
    assert {r.resource_name: r.error_code for r in answer.responses} == {
        "bad": ErrorCode.INVALID_REQUEST,
        "good": 0,
    }


@in_world(run)
async def test_a_controller_that_does_not_answer_times_out_every_resource(world: World) -> None:
    world.controller.script["alter_configs"] = never
    resources = [
        replacing.AlterConfigsResource(resource_type=TOPIC, resource_name=name)
        for name in ("a", "b")
    ]
    answer = await world.client().ask(replacing.AlterConfigsRequest(resources=resources), 2)
    assert [(r.resource_name, r.error_code) for r in answer.responses] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]


# ---- list ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "types", "expected"),
    [
        (0, [], [(METRICS, "m")]),
        (1, [TOPIC], [(TOPIC, "a"), (TOPIC, "b")]),
        (1, [GROUP, BROKER], [(BROKER, "1"), (GROUP, "g")]),
        (
            1,
            [],
            [
                (TOPIC, "a"),
                (TOPIC, "b"),
                (BROKER, "1"),
                (LOGGER, "1"),
                (METRICS, "m"),
                (GROUP, "g"),
            ],
        ),
        (1, [LOGGER, METRICS], [(LOGGER, "1"), (METRICS, "m")]),
    ],
)
@in_world(run)
async def test_list_config_resources(
    world: World, *, version: int, types: list[int], expected: list[tuple[int, str]]
) -> None:
    await world.brokers(1)
    await world.topic("b")
    await world.topic("a")
    await world.apply(
        ConfigChanged(GROUP, "g", "consumer.session.timeout.ms", "50000"),
        ConfigChanged(METRICS, "m", "interval.ms", "5000"),
    )
    request = ListConfigResourcesRequest(resource_types=types)
    answer = await world.client().ask(request, version)
    assert answer.config_resources == [
        ConfigResource(resource_type=kind, resource_name=name) for kind, name in expected
    ]


@in_world(run)
async def test_unknown_resource_types(world: World) -> None:
    request = ListConfigResourcesRequest(resource_types=[TOPIC, 77])
    answer = await world.client().ask(request, 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


# ---- a change is seen where it was made ------------------------------------------------------


def setting(name: str, value: str | None) -> incremental.IncrementalAlterConfigsRequest:
    config = incremental.AlterableConfig(name=name, config_operation=0, value=value)
    resource = incremental.AlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    return incremental.IncrementalAlterConfigsRequest(resources=[resource])


@in_world(run)
async def test_a_change_is_answered_when_it_is_seen_here(world: World) -> None:
    await world.topic("t")
    end = world.gateway.cluster.image.offset + 1
    world.controller.script["alter_configs"] = lambda _: [ConfigOutcome(TOPIC, "t", offset=end)]
    client = world.client()
    client.send(setting("retention.ms", "5"), 1)
    await settle()
    assert client.received() == []
    await world.apply(ConfigChanged(TOPIC, "t", "retention.ms", "5"))
    await settle()
    assert [one.responses[0].error_code for one in client.received()] == [0]
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_a_change_that_does_not_come_is_answered_all_the_same(world: World) -> None:
    await world.topic("t")
    world.controller.script["alter_configs"] = lambda _: [ConfigOutcome(TOPIC, "t", offset=99)]
    client = world.client()
    client.send(setting("retention.ms", "5"), 1)
    await world.runtime.advance(4_999)
    assert client.received() == []
    await world.runtime.advance(1)
    assert [one.responses[0].error_code for one in client.received()] == [0]


# ---- interceptors are tried before they are set ----------------------------------------------


@pytest.mark.parametrize(
    ("schema", "says"),
    [("{}", None), ("{", "interceptor 'json-schema' refuses its options: schema is not JSON")],
)
@in_world(run)
async def test_options_that_an_interceptor_refuses_are_not_set(
    world: World, *, schema: str, says: str | None
) -> None:
    await world.topic("t")
    await world.apply(ConfigChanged(TOPIC, "t", "raylog.interceptors", "json-schema"))
    world.controller.script["alter_configs"] = lambda asked: [
        ConfigOutcome(one.resource_type, one.resource_name) for one in asked.alterations
    ]
    option = "raylog.interceptor.json-schema.schema"
    answer = await world.client().ask(setting(option, schema), 1)
    (response,) = answer.responses
    asked: AlterConfigs = world.controller.asked[-1][1]
    if says is None:
        assert (response.error_code, len(asked.alterations)) == (0, 1)
    else:
        assert response.error_code == ErrorCode.INVALID_CONFIG
        assert says in response.error_message
        assert asked.alterations == []


@in_world(run)
async def test_interceptors_of_an_unknown_topic_are_not_loaded(world: World) -> None:
    world.runtime.foreign_hangs = True
    world.controller.script["alter_configs"] = lambda _: [
        ConfigOutcome(TOPIC, "t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic t")
    ]
    answer = await world.client().ask(setting("raylog.interceptors", "json-schema"), 1)
    assert answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ((_, asked),) = world.controller.asked
    assert [one.resource_name for one in asked.alterations] == ["t"]


@in_world(run)
async def test_an_interceptor_that_hangs_while_it_is_tried_is_refused(world: World) -> None:
    await world.topic("t")
    world.controller.script["alter_configs"] = lambda _: []
    world.runtime.foreign_hangs = True
    client = world.client()
    client.send(setting("raylog.interceptors", "json-schema"), 1)
    await world.runtime.advance(5_000)
    (answer,) = client.received()
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert "took more than 5000 ms" in answer.responses[0].error_message


@in_world(run)
async def test_options_are_described_with_the_topic(world: World) -> None:
    await world.topic("t")
    option = "raylog.interceptor.json-schema.schema"
    await world.apply(ConfigChanged(TOPIC, "t", option, "{}"))
    (config,) = (await described(world, describe(TOPIC, "t", [option]))).configs
    assert (config.name, config.value, config.config_source) == (option, "{}", 1)
    everything = (await described(world, describe(TOPIC, "t"))).configs
    assert {"raylog.interceptors", option} <= {one.name for one in everything}
