"""Interceptors in the gateway: before the replicas, before the clients, and when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from raylog.actors.interceptors.api import ENTRY_POINT_GROUP
from raylog.actors.metadata.records import ConfigChanged, TopicDeleted
from raylog.actors.replica.messages import FETCH, PRODUCE
from raylog.wire.compression import Codec
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.records import (
    Record,
    decode_batch,
    encode_batch,
    encode_like,
    iter_batches,
    read_header,
)
from tests.support.plugins import installed
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.gateway.fetching import SEGMENT, fetch, part
from tests.worlds.gateway.fetching import records as read_by
from tests.worlds.gateway.producing import appended, codes, produce
from tests.worlds.runtime import FakeLink, settle

T = topic_id("t")
NOW_MS = 1_000_000
CODE = """
    from raylog.actors.interceptors.api import Interceptor, Rejected

    class Upper(Interceptor):
        name = "upper"
        def on_produce(self, topic, records):
            return [one._replace(value=one.value.upper()) for one in records]

    class Drop(Interceptor):
        name = "drop"
        def on_produce(self, topic, records):
            return [one for one in records if one.value != b"drop"]

    class Keyless(Interceptor):
        name = "keyless"
        def on_produce(self, topic, records):
            return [one._replace(key=None) for one in records]

    class Grow(Interceptor):
        name = "grow"
        def on_produce(self, topic, records):
            return [one._replace(value=bytes(2000)) for one in records]

    class Refuse(Interceptor):
        name = "refuse"
        def on_produce(self, topic, records):
            return [Rejected(one.offset, "no") if one.value == b"bad" else one for one in records]

    class Hide(Interceptor):
        name = "hide"
        def on_fetch(self, topic, records):
            return [one._replace(value=b"*") for one in records]

    class Fail(Interceptor):
        name = "fail"
        def on_produce(self, topic, records): raise ValueError("broken " + topic)
        on_fetch = on_produce

    class Picky(Interceptor):
        name = "picky"
        def configure(self, options):
            if "fields" not in options:
                raise ValueError("give it fields")
"""
NAMES = ("upper", "drop", "keyless", "grow", "refuse", "hide", "fail", "picky")


@pytest.fixture(autouse=True)
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    entries = {name: name.capitalize() for name in NAMES}
    with installed(tmp_path_factory.mktemp("plugins"), ENTRY_POINT_GROUP, CODE, entries):
        yield


def batch_of(*values: bytes, **header: Any) -> bytes:
    return encode_batch(
        [Record(i, NOW_MS, b"k", value, []) for i, value in enumerate(values)], **header
    )


async def intercepted(world: World, names: str, **configs: str) -> FakeLink:
    await world.brokers(1)
    await world.topic("t", 2)
    await configure(world, names, **configs)
    link = await world.route("replica", (T, 0), (T, 1))
    link.answering = appended
    return link


async def configure(world: World, names: str | None, **configs: str) -> None:
    settings = {"raylog.interceptors": names}
    settings |= {name.replace("_", "."): value for name, value in configs.items()}
    await world.apply(*(ConfigChanged(2, "t", key, value) for key, value in settings.items()))


def sent(link: FakeLink) -> list[bytes]:
    return [one.payload for one in link.requests if one.kind == PRODUCE]


# ---- produce ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
@in_world(run)
async def test_intercepted_records_are_stored_with_the_producers_codec(
    world: World, *, codec: Codec
) -> None:
    link = await intercepted(world, "upper")
    batch = batch_of(b"a", b"b", codec=codec, producer_id=3, producer_epoch=0, base_sequence=9)
    assert codes(await world.client().ask(produce((0, batch)), 9)) == [ErrorCode.NONE]
    (stored,) = sent(link)
    header = read_header(stored)
    assert (header.codec, header.producer_id, header.last_sequence) == (codec, 3, 10)
    assert [record.value for record in decode_batch(stored)] == [b"A", b"B"]


@pytest.mark.parametrize("codec", list(Codec))
@in_world(run)
async def test_a_topics_own_codec_comes_before_the_producers(world: World, *, codec: Codec) -> None:
    link = await intercepted(world, "upper", compression_type="lz4")
    await world.client().ask(produce((0, batch_of(b"a", codec=codec))), 9)
    (stored,) = sent(link)
    assert read_header(stored).codec is Codec.LZ4
    assert [record.value for record in decode_batch(stored)] == [b"A"]


@in_world(run)
async def test_unchanged_batch_is_stored_as_received(world: World) -> None:
    link = await intercepted(world, "drop")
    batch = batch_of(b"a", codec=Codec.GZIP)
    await world.client().ask(produce((0, batch)), 9)
    assert sent(link) == [batch]


@in_world(run)
async def test_a_topic_without_interceptors_takes_no_detour(world: World) -> None:
    link = await intercepted(world, "")
    world.runtime.foreign_hangs = True
    world.client().send(produce((0, batch_of(b"a"))), 9)
    assert sent(link) == [batch_of(b"a")]


@in_world(run)
async def test_dropped_records_leave_the_sequences_alone(world: World) -> None:
    link = await intercepted(world, "drop")
    batch = batch_of(b"a", b"drop", producer_id=3, producer_epoch=0, base_sequence=9)
    answer = await world.client().ask(produce((0, batch)), 9)
    assert codes(answer) == [ErrorCode.NONE]
    header = read_header(sent(link)[0])
    assert (header.record_count, header.last_offset_delta, header.last_sequence) == (1, 1, 10)


@pytest.mark.parametrize("version", [7, 8, 9, 13])
@in_world(run)
async def test_a_producer_is_told_which_records_were_rejected(
    world: World, *, version: int
) -> None:
    link = await intercepted(world, "refuse,upper")
    request = produce((0, batch_of(b"a", b"bad", b"bad")), (1, batch_of(b"b")), by_id=T)
    answer = await world.client().ask(request, version)
    assert codes(answer) == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    refused = answer.responses[0].partition_responses[0]
    errors = [(one.batch_index, one.batch_index_error_message) for one in refused.record_errors]
    assert errors == ([(1, "refuse: no"), (2, "refuse: no")] if version >= 8 else [])
    if version >= 8:
        assert refused.error_message == "record 1: refuse: no; record 2: refuse: no"
    assert len(sent(link)) == 1


@pytest.mark.parametrize(
    ("names", "configs", "expected"),
    [
        ("keyless", {"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),
        ("grow", {"max_message_bytes": "1000"}, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
@in_world(run)
async def test_a_topics_rules_hold_for_what_interceptors_make(
    world: World, *, names: str, configs: dict[str, str], expected: ErrorCode
) -> None:
    link = await intercepted(world, names, **configs)
    assert codes(await world.client().ask(produce((0, batch_of(b"a"))), 9)) == [expected]
    assert sent(link) == []


@in_world(run)
async def test_a_batch_that_lies_about_its_records_is_refused(world: World) -> None:
    await intercepted(world, "upper")
    header = read_header(batch_of(b"a", b"b", b"c"))
    wrong = encode_like(header, decode_batch(batch_of(b"a", b"b")))
    wrong = wrong[:57] + (3).to_bytes(4, "big") + wrong[61:]
    wrong = wrong[:17] + crc32c(wrong[21:]).to_bytes(4, "big") + wrong[21:]
    assert codes(await world.client().ask(produce((0, wrong)), 9)) == [ErrorCode.INVALID_RECORD]


@in_world(run)
async def test_settings_that_change_take_effect_with_the_next_batch(world: World) -> None:
    link = await intercepted(world, "upper")
    client = world.client()
    await client.ask(produce((0, batch_of(b"a"))), 9)
    await configure(world, "drop")
    await client.ask(produce((0, batch_of(b"b", b"drop"))), 9)
    await configure(world, None)
    await client.ask(produce((0, batch_of(b"drop"))), 9)
    found = [[record.value for record in decode_batch(batch)] for batch in sent(link)]
    assert found == [[b"A"], [b"b"], [b"drop"]]


@in_world(run)
async def test_interceptors_of_a_topic_that_is_gone_are_forgotten(world: World) -> None:
    await intercepted(world, "upper")
    await world.topic("u", 1)
    client = world.client()
    await client.ask(produce((0, batch_of(b"a"))), 9)
    kept = world.gateway.rules._interception._topics
    assert list(kept) == [T]
    await world.apply(TopicDeleted(T), ConfigChanged(2, "u", "retention.ms", "5"))
    world.gateway.rules.of(world.gateway.cluster.image.topics[topic_id("u")])
    assert kept == {}


# ---- order -----------------------------------------------------------------------------------


def test_batches_of_a_partition_stay_in_order_and_others_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        link = await intercepted(world, "upper")
        gates = [asyncio.Event() for _ in range(3)]
        waiting = iter(gates)

        async def gated(function: Callable[..., Any], *args: Any, timeout_ms: int) -> Any:
            await next(waiting).wait()
            return function(*args)

        monkeypatch.setattr(world.runtime, "run_foreign", gated)
        client = world.client()
        client.send(produce((0, batch_of(b"first"))), 9)
        client.send(produce((1, batch_of(b"other"))), 9)
        client.send(produce((0, batch_of(b"second"))), 9)
        await settle()
        await configure(world, None)
        client.send(produce((0, batch_of(b"third"))), 9)  # takes no time, but not its turn
        gates[1].set()
        await settle()
        assert [value_of(batch) for batch in sent(link)] == [b"OTHER"]
        gates[2].set()
        await settle()
        assert len(sent(link)) == 1  # the second waits for the first
        gates[0].set()
        await settle()
        values = [value_of(batch) for batch in sent(link)]
        assert values == [b"OTHER", b"FIRST", b"SECOND", b"third"]
        assert [codes(answer) for answer in client.received()] == [[ErrorCode.NONE]] * 4

    def value_of(batch: bytes) -> bytes | None:
        return decode_batch(batch)[0].value

    run(scenario)


@pytest.mark.parametrize("first", [0, 1])
@in_world(run)
async def test_a_request_of_two_producers_writes_nothing_of_what_takes_long(
    world: World, *, first: int
) -> None:
    link = await intercepted(world, "upper")
    request = produce(
        *(
            (
                index,
                batch_of(
                    b"a",
                    producer_id=5 + (index == first),
                    producer_epoch=0,
                    base_sequence=0,
                    is_transactional=True,
                ),
            )
            for index in range(2)
        )
    )
    request.transactional_id = "x"
    answer = await world.client().ask(request, 9)
    assert codes(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert link.requests == []


@in_world(run)
async def test_a_partition_that_moved_away_meanwhile_is_not_written_to(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await intercepted(world, "upper")
    gate = asyncio.Event()

    async def gated(function: Callable[..., Any], *args: Any, timeout_ms: int) -> Any:
        await gate.wait()
        return function(*args)

    monkeypatch.setattr(world.runtime, "run_foreign", gated)
    client = world.client()
    client.send(produce((0, batch_of(b"a"))), 9)
    await settle()
    await world.unroute((T, 0))
    gate.set()
    await settle()
    (answer,) = client.received()
    assert codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert sent(link) == []


# ---- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("upper,fail", "topic t: interceptor 'fail' failed: ValueError: broken t"),
        ("picky", "topic t: interceptor 'picky' refuses its options: give it fields"),
        ("gone", "topic t: no interceptor 'gone' is installed"),
    ],
)
def test_a_failing_interceptor_is_named_logged_once_and_survived(
    names: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        link = await intercepted(world, names)
        client = world.client()
        for _ in range(3):
            answer = await client.ask(produce((0, batch_of(b"a"))), 9)
            assert codes(answer) == [ErrorCode.UNKNOWN_SERVER_ERROR]
            message = answer.responses[0].partition_responses[0].error_message
            assert message.startswith(says.removeprefix("topic t: "))
        assert sent(link) == []
        await configure(world, "upper")
        assert codes(await client.ask(produce((0, batch_of(b"a"))), 9)) == [ErrorCode.NONE]

    run(scenario)
    assert sum(says in record.getMessage() for record in caplog.records) == 1


def test_interceptors_that_do_not_load_are_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from raylog.actors.interceptors import loading

    tries = []
    really = loading.load_chain

    def load(*args: Any) -> Any:
        tries.append(args)
        return really(*args)

    monkeypatch.setattr(loading, "load_chain", load)

    async def scenario(world: World) -> None:
        await intercepted(world, "picky")
        client = world.client()
        for _ in range(3):
            await client.ask(produce((0, batch_of(b"a"))), 9)
        assert len(tries) == 1
        await world.runtime.advance(10_000)
        await client.ask(produce((0, batch_of(b"a"))), 9)
        assert len(tries) == 2

    run(scenario)


def test_hanging_interceptor_times_out_and_is_not_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await intercepted(world, "upper,drop")
        world.runtime.foreign_hangs = True
        client = world.client()
        client.send(produce((0, batch_of(b"a")), timeout_ms=20_000), 9)
        await world.runtime.advance(6_999)
        assert client.received() == []
        await world.runtime.advance(1)
        (answer,) = client.received()
        assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
        message = answer.responses[0].partition_responses[0].error_message
        assert "'upper, drop' of topic t took more than 7000 ms" in message
        again = await client.ask(produce((0, batch_of(b"a"))), 9)
        assert codes(again) == [ErrorCode.REQUEST_TIMED_OUT]
        message = again.responses[0].partition_responses[0].error_message
        assert "has not come back from an earlier call" in message

    run(scenario, raylog_interceptors_timeout_ms="7000")
    assert caplog.text.count("took more than") == 1


@in_world(run)
async def test_a_hanging_interceptor_is_forgotten_with_its_settings(world: World) -> None:
    await intercepted(world, "upper")
    world.runtime.foreign_hangs = True
    client = world.client()
    client.send(produce((0, batch_of(b"a"))), 9)
    await world.runtime.advance(5_000)
    assert len(client.received()) == 1
    world.runtime.foreign_hangs = False
    await configure(world, "drop")
    assert codes(await client.ask(produce((0, batch_of(b"a"))), 9)) == [ErrorCode.NONE]


@in_world(run)
async def test_acks_0_of_a_rejected_record_closes_the_connection(world: World) -> None:
    await intercepted(world, "refuse")
    client = world.client()
    client.send(produce((0, batch_of(b"bad")), acks=0), 9)
    await settle()
    assert client.transport.closed


# ---- fetch -----------------------------------------------------------------------------------


async def stored(world: World, tmp_path: Path, names: str, *batches: bytes) -> tuple[FakeLink, int]:
    """Topic t with interceptors and a segment of these batches."""
    await intercepted(world, names)
    (tmp_path / SEGMENT).write_bytes(b"".join(batches))
    link = await world.route("replica", (T, 0), directory=str(tmp_path))
    link.answering = None
    return link, sum(map(len, batches))


@in_world(run)
async def test_fetched_records_pass_through_interceptors(world: World, *, tmp_path: Path) -> None:
    batches = [batch_of(b"a", b"b"), batch_of(b"c", base_offset=2, codec=Codec.ZSTD)]
    link, size = await stored(world, tmp_path, "hide", *batches)
    client = world.client()
    client.send(fetch((0, 0)), 12)
    link.take(FETCH).reply([part(0, size, position=0)])
    await settle()
    (answer,) = client.received()
    (_, first), (header, second) = iter_batches(read_by(answer)[0])
    assert [record.value for record in decode_batch(first)] == [b"*", b"*"]
    assert [(one.offset, one.value) for one in decode_batch(second)] == [(2, b"*")]
    assert header.codec is Codec.ZSTD


@in_world(run)
async def test_fetch_skips_interceptors_without_on_fetch(world: World, *, tmp_path: Path) -> None:
    batch = batch_of(b"a")
    link, size = await stored(world, tmp_path, "upper", batch)
    client = world.client()
    for _ in range(2):
        client.send(fetch((0, 0)), 12)
        link.take(FETCH).reply([part(0, size, position=0)])
        await settle()
        (answer,) = client.received()
        assert read_by(answer) == {0: batch}
        world.runtime.foreign_hangs = True  # by now it is known that nobody needs asking


@in_world(run)
async def test_a_cold_slice_goes_through_them_too(
    world: World, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, size = await stored(world, tmp_path, "hide", batch_of(b"a"))
    monkeypatch.setattr(world.gateway.maps, "slice", lambda *_: None)
    client = world.client()
    client.send(fetch((0, 0)), 12)
    link.take(FETCH).reply([part(0, size, position=0)])
    await settle()
    (answer,) = client.received()
    assert [record.value for record in decode_batch(read_by(answer)[0])] == [b"*"]


@in_world(run)
async def test_a_failure_hides_the_records_and_is_answered_with_a_pause(
    world: World, *, tmp_path: Path
) -> None:
    link, size = await stored(world, tmp_path, "fail", batch_of(b"a"))
    client = world.client()
    client.send(fetch((0, 0), max_wait_ms=300), 12)
    link.take(FETCH).reply([part(0, size, position=0)])
    await world.runtime.advance(299)
    assert client.received() == []
    await world.runtime.advance(1)
    (answer,) = client.received()
    data = answer.responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bytes(data.records) == b""


@in_world(run)
async def test_nothing_is_read_of_a_topic_that_is_just_gone(
    world: World, *, tmp_path: Path
) -> None:
    link, size = await stored(world, tmp_path, "hide", batch_of(b"a"))
    client = world.client()
    client.send(fetch((0, 0)), 12)
    del world.gateway.cluster.image.topics[T]
    link.take(FETCH).reply([part(0, size, position=0)])
    await settle()
    (answer,) = client.received()
    assert read_by(answer) == {}


# ---- long work of other kinds ----------------------------------------------------------------


ALIKE = [b"v"] * 10_000
MIXED = [b"v" * (n * n % 89) for n in range(4_000)]
LARGE = [bytes(20_000)] * 20


@pytest.mark.parametrize(
    ("configs", "values", "codec", "aside"),
    [
        ({}, ALIKE, Codec.NONE, False),
        ({}, ALIKE, Codec.GZIP, False),
        ({}, MIXED, Codec.NONE, True),
        ({}, MIXED[:900], Codec.NONE, False),
        ({}, MIXED[:900], Codec.LZ4, False),
        ({}, MIXED, Codec.LZ4, True),
        ({}, LARGE, Codec.NONE, False),
        ({}, LARGE, Codec.ZSTD, True),
        ({"compression_type": "gzip"}, ALIKE, Codec.GZIP, False),
        ({"compression_type": "gzip"}, [b"v"] * 2, Codec.NONE, False),
        ({"compression_type": "gzip"}, ALIKE, Codec.NONE, True),
        ({"compression_type": "uncompressed"}, ALIKE, Codec.ZSTD, False),
        ({"compression_type": "uncompressed"}, MIXED, Codec.ZSTD, True),
        ({"cleanup_policy": "compact"}, [b"v"] * 2, Codec.NONE, False),
        ({"cleanup_policy": "compact"}, MIXED, Codec.NONE, True),
        ({"cleanup_policy": "compact"}, MIXED, Codec.ZSTD, True),
    ],
)
@in_world(run)
async def test_long_work_on_a_batch_is_done_beside_the_loop(
    world: World,
    *,
    configs: dict[str, str],
    values: list[bytes],
    codec: Codec,
    aside: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = await intercepted(world, "", **configs)
    done = []

    async def beside(function: Callable[..., Any], *args: Any) -> Any:
        done.append(function)
        return function(*args)

    monkeypatch.setattr(world.runtime, "run_blocking", beside)
    request: ProduceRequest = produce((0, batch_of(*values, codec=codec)))
    assert codes(await world.client().ask(request, 9)) == [ErrorCode.NONE]
    assert bool(done) is aside
    assert [record.value for record in decode_batch(sent(link)[0])] == values


@pytest.mark.parametrize(
    ("config", "codec"), [("compression_gzip_level", "gzip"), ("compression_zstd_level", "zstd")]
)
def test_a_codec_is_used_at_the_topics_level(config: str, codec: str) -> None:
    async def size_at(world: World, level: str) -> int:
        link = await intercepted(world, "", **{"compression_type": codec, config: level})
        values = [b"%d %d" % (i, i * i) for i in range(500)]
        await world.client().ask(produce((0, batch_of(*values))), 9)
        return len(sent(link)[0])

    sizes = []

    async def scenario(world: World) -> None:
        sizes.append(await size_at(world, levels.pop()))

    levels = ["9", "1"]
    run(scenario)
    run(scenario)
    assert sizes[1] < sizes[0]
