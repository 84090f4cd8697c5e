"""Declared pipelines on Spark: those of the examples, bad input, ends and restarts."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pandas
import pytest

from raylog.client import BlockingClient, NewTopic
from raylog.client.parallel.letters import VALUE_LEFT_OUT
from raylog.client.schemas import AvroSerializer, Schema, SchemaRegistry
from raylog.raydp_jobs.pipelines.failures import BadInput, BatchNotWritten, PipelineFailed
from raylog.raydp_jobs.pipelines.pipeline import Pipeline
from raylog.raydp_jobs.pipelines.register import Displaced, RunTopic, look
from raylog.raydp_jobs.pipelines.running import Control, run_pipeline
from raylog.raydp_jobs.pipelines.runs import Place, RunState, encode, run_key
from raylog.raydp_jobs.pipelines.spec import AVAILABLE_NOW, BadSpec, PipelineSpec, Transform, load
from raylog.raydp_jobs.pipelines.topics import lags
from raylog.testing import EmbeddedBroker
from tests.spark.conftest import ROOT
from tests.spark.reading import read_all, values
from tests.support.ray_clusters import wait_until
from tests.worlds.servers import registry as fake_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raylog.client import Record

TIMEOUT_MS = 30_000
EXAMPLES = ROOT / "docs" / "examples" / "pipelines"
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Bench:
    """A broker of its own, for topics as the examples name them, and what runs on it."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.folder = spark, bootstrap, folder

    def create(self, *topics: str, partitions: int = 2) -> None:
        with BlockingClient(self.bootstrap) as client:
            client.create_topics([NewTopic(topic, partitions) for topic in topics])

    def feed(self, topic: str, *rows: object, key: bytes | None = None) -> None:
        """Write values: bytes as they are, all else as JSON."""
        with BlockingClient(self.bootstrap) as client, client.producer() as producer:
            for row in rows:
                value = row if isinstance(row, bytes) else json.dumps(row).encode()
                producer.send(topic, value, key=key)

    def feed_record(self, topic: str, value: bytes | None, key: bytes) -> None:
        """Write one record as it is."""
        with BlockingClient(self.bootstrap) as client, client.producer() as producer:
            producer.send(topic, value, key=key)

    def example(self, name: str) -> PipelineSpec:
        shutil.copytree(EXAMPLES, self.folder / "examples", dirs_exist_ok=True)
        found = load(self.folder / "examples" / f"{name}.toml")
        return found.model_copy(update={"trigger": AVAILABLE_NOW})

    def spec(self, name: str, **fields: Any) -> PipelineSpec:
        """A pipeline from one topic of JSON to another."""
        source = {"topics": [f"{name}-in"], "format": "json", "schema": "n INT NOT NULL, t STRING"}
        return PipelineSpec.model_validate(
            {
                "name": name,
                "checkpoint": self.folder / "checkpoint",
                "sources": {"rows": {**source, **fields.pop("source", {})}},
                "transform": {"sql": "SELECT n, t FROM rows"},
                "sink": {"topic": f"{name}-out", "key": ["n"]},
                "dead_letters": f"{name}-bad",
                "trigger": AVAILABLE_NOW,
                **fields,
            }
        )

    def run(self, spec: PipelineSpec, control: Control | None = None) -> RunState:
        return run_pipeline(spec, self.spark, self.bootstrap, control)

    def newest_run(self, spec: PipelineSpec) -> RunState:
        """As the pipeline's topic tells."""
        with RunTopic(self.bootstrap, spec.name) as topic:
            found, _ = look(topic)
        assert found is not None
        return found

    def lag(self, spec: PipelineSpec) -> int | None:
        """Of a pipeline of one topic."""
        (found,) = lags(self.bootstrap, spec, TIMEOUT_MS)
        return found.lag

    def records(self, topic: str) -> list[Record]:
        return [one for many in read_all(self.bootstrap, topic).values() for one in many]

    def rows(self, topic: str) -> list[Any]:
        """Values as JSON, sorted."""
        return [json.loads(value) for value in values(self.bootstrap, topic)]


@pytest.fixture
def own_broker() -> Iterator[str]:
    """A broker of the test's own: the examples name the same topics."""
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def bench(spark: SparkSession, own_broker: str, tmp_path: Path) -> Iterator[Bench]:
    """Plans are interpreted: compiling them takes longer than so few rows do."""
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    yield Bench(spark, own_broker, tmp_path)
    for key in INTERPRETED:
        spark.conf.unset(key)


@pytest.fixture
def three(bench: Bench, name: str) -> str:
    """Topics in, out and for dead letters."""
    bench.create(f"{name}-in", f"{name}-out", f"{name}-bad")
    return name


def headers_of(record: Record) -> dict[str, str]:
    return {key: (value or b"").decode() for key, value in record.headers or []}


def test_windows_are_counted_and_written_once(bench: Bench) -> None:
    bench.create("views", "views-bad", "page-minutes")
    at = "2026-01-01T10:{:02d}:30Z"
    bench.feed("views", *({"page": "a", "ms": 5, "at": at.format(n // 2)} for n in range(8)))
    bench.feed("views", {"page": "b", "at": at.format(0)}, {"ms": 1, "at": at.format(0)}, b"{")
    spec = bench.example("counts")
    bench.run(spec)
    bench.feed("views", {"page": "a", "ms": 1, "at": at.format(9)})
    bench.run(spec)
    bench.run(spec)
    found = sorted(
        (row["minute"][:16], row["page"], row["views"]) for row in bench.rows("page-minutes")
    )
    assert found == [
        ("2026-01-01T10:00", "a", 2),
        ("2026-01-01T10:00", "b", 1),
        ("2026-01-01T10:01", "a", 2),
        ("2026-01-01T10:02", "a", 2),
        ("2026-01-01T10:03", "a", 2),
    ]
    reasons = sorted(
        headers_of(one)["__raylog.errors.reason"] for one in bench.records("views-bad")
    )
    assert reasons == ["malformed JSON", "page is missing, expected string"]


def test_streams_and_tables_are_joined(bench: Bench) -> None:
    """An order without a payment is not written; the newest value of a customer is."""
    bench.create("orders", "payments", "customers", "orders-bad", "paid-orders")
    order = {"customer": "c1", "cents": 100, "at": "2026-01-01T10:00:00Z"}
    at_ms = 1_767_261_600_000
    bench.feed("customers", {"name": "Old", "country": "FR"}, key=b"c1")
    bench.feed("customers", {"name": "Ann", "country": "DE"}, key=b"c1")
    bench.feed(
        "orders", {"id": 1, **order}, {"id": 2, **order}, {"id": 3, **order, "customer": "x"}
    )
    bench.feed("payments", *({"order": n, "cents": 90, "at_ms": at_ms + 60_000} for n in (1, 3)))
    bench.feed("payments", {"order": 2, "cents": 90, "at_ms": at_ms - 60_000}, {"order": "2"})
    spec = bench.example("paid-orders")
    bench.run(spec)
    bench.run(spec)
    assert bench.rows("paid-orders") == [
        {"id": 1, "name": "Ann", "country": "Germany", "cents": 100, "paid_cents": 90},
        {"id": 3, "name": None, "country": None, "cents": 100, "paid_cents": 90},
    ]
    assert {one.key for one in bench.records("paid-orders")} == {b"1", b"3"}
    (bad,) = bench.records("orders-bad")
    assert bad.value == b'{"order": "2"}'
    assert headers_of(bad)["__raylog.errors.reason"] == "order: expected bigint, found 2"


def test_a_topic_lands_as_parquet_once(bench: Bench, three: str) -> None:
    """A batch that Spark does not know to be done is there already; so are its dead letters."""
    folder = bench.folder / "landed"
    spec = bench.spec(three, sink={"path": folder}, source={"max_offsets_per_trigger": 4})
    bench.feed(f"{three}-in", *({"n": n, "t": "x"} for n in range(9)), b"bad")
    bench.run(spec)
    last = max(int(path.name) for path in (spec.checkpoint / "commits").glob("[0-9]*"))
    forget_commit(spec.checkpoint, last)
    (folder / "_writing").mkdir()
    shutil.copytree(folder / f"batch={last}", folder / "_writing" / "of-a-dead-driver")
    bench.feed(f"{three}-in", {"n": 9, "t": "x"})
    bench.run(spec)
    assert last > 0
    found = pandas.read_parquet(folder)
    assert sorted(found["n"]) == list(range(10))
    assert sorted(row.n for row in bench.spark.read.parquet(str(folder)).collect()) == list(
        range(10)
    )
    assert [one.value for one in bench.records(f"{three}-bad")] == [b"bad"]
    with pytest.raises(PipelineFailed, match="holds the rows of another query"):
        bench.run(spec.model_copy(update={"checkpoint": bench.folder / "new"}))


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """The driver died between our commit and Spark's."""
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink()


def test_dead_letters_are_as_they_were_and_there_once(bench: Bench, three: str) -> None:
    """With their reasons, in the transaction of their batch."""
    bad = {
        b'{"n": 1': "malformed JSON",
        b'{"n": 1} {"n": 2}': "not one JSON object of the schema",
        b'{"n": "one"}': "n: expected int, found one",
        b'{"t": "x"}': "n is missing, expected int",
        b'{"n": 1, "t": "\xff"}': "not UTF-8",
        b"null": "expected a JSON object, found null",
        None: "there is no value",
    }
    with BlockingClient(bench.bootstrap) as client, client.producer() as producer:
        for n, value in enumerate(bad):
            headers: list[tuple[str, bytes | None]] = [("h", b"\x00"), ("none", None)]
            producer.send(f"{three}-in", value, b"\xfe", headers, 1_000 + n, 1)
    bench.feed(f"{three}-in", {"n": 5}, {"n": 6, "t": "y", "other": 1})
    spec = bench.spec(three, source={"tombstones": "refuse"})
    bench.run(spec)
    forget_commit(spec.checkpoint, 0)
    bench.run(spec)
    assert bench.rows(f"{three}-out") == [{"n": 5, "t": None}, {"n": 6, "t": "y"}]
    found = sorted(bench.records(f"{three}-bad"), key=lambda record: record.timestamp)
    assert [one.value for one in found] == list(bad)
    assert {one.key for one in found} == {b"\xfe"}
    assert [(one.headers or [])[:2] for one in found] == [[("h", b"\x00"), ("none", None)]] * len(
        bad
    )
    letter_headers = [headers_of(one) for one in found]
    assert [one["__raylog.errors.reason"] for one in letter_headers] == list(bad.values())
    assert [
        (one["__raylog.errors.topic"], one["__raylog.errors.partition"]) for one in letter_headers
    ] == [(f"{three}-in", "1")] * len(bad)
    offsets = [int(one["__raylog.errors.offset"]) for one in letter_headers]
    assert offsets == sorted(set(offsets))
    assert [one["__raylog.errors.timestamp"] for one in letter_headers] == [
        str(1_000 + n) for n in range(len(bad))
    ]


def test_a_dead_letter_that_is_too_large_is_without_its_value(bench: Bench, three: str) -> None:
    """The headers add some 250 bytes to a record that was within the limit."""
    fits, larger = b"x" * 999_500, b"x" * 999_900
    bench.feed(f"{three}-in", fits, larger, key=b"k")
    bench.run(bench.spec(three, sink={"path": bench.folder / "landed"}))
    whole, cut = bench.records(f"{three}-bad")
    assert (whole.key, whole.value) == (b"k", fits)
    assert VALUE_LEFT_OUT not in headers_of(whole)
    assert (cut.key, cut.value) == (b"k", None)
    assert headers_of(cut)[VALUE_LEFT_OUT] == "999900"
    assert headers_of(cut)["__raylog.errors.reason"] == "malformed JSON"


@pytest.mark.parametrize("to_folder", [False, True])
def test_a_schema_that_appears_meanwhile_loses_no_record(
    bench: Bench, three: str, to_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a bad record when the rows are computed, and a good one when it is to be written."""
    one, other = (
        json.dumps({"type": "record", "name": "A", "fields": [{"name": "n", "type": kind}]})
        for kind in ("long", "int")
    )
    find_letters = Pipeline._letters

    def registered_meanwhile(pipeline: Pipeline, *args: Any) -> DataFrame | None:
        registry.register("other", Schema(other))
        time.sleep(1.1)  # workers remember for a second that there is no such schema
        return find_letters(pipeline, *args)

    with fake_registry.running() as fake, SchemaRegistry(fake.url) as registry:
        first = AvroSerializer(registry, one)(f"{three}-in", {"n": 5})
        second = first[:4] + bytes([first[4] + 1]) + first[5:]
        bench.feed(f"{three}-in", first, second, b"bad")
        source = {"format": "avro", "schema": None, "registry": fake.url}
        fields = {"sink": {"path": bench.folder / "landed"}} if to_folder else {}
        spec = bench.spec(three, source=source, transform={"sql": "SELECT n FROM rows"}, **fields)
        monkeypatch.setattr(Pipeline, "_letters", registered_meanwhile)
        with pytest.raises(BatchNotWritten, match="records that did not parse"):
            bench.run(spec)
        monkeypatch.undo()
        assert bench.records(f"{three}-bad") == bench.records(f"{three}-out") == []
        bench.run(spec)
    if to_folder:
        assert list(pandas.read_parquet(bench.folder / "landed")["n"]) == [5, 5]
    else:
        assert bench.rows(f"{three}-out") == [{"n": 5}, {"n": 5}]
    assert [one.value for one in bench.records(f"{three}-bad")] == [b"bad"]


def test_without_a_topic_for_it_a_bad_record_fails_the_pipeline(bench: Bench, three: str) -> None:
    """The message names its origin; nothing is lost: with a topic for it the same batch goes on."""
    bench.feed(f"{three}-in", {"n": 1})
    bench.feed(f"{three}-in", b"bad", key=b"k")
    spec = bench.spec(three)
    expected = rf"{three}-in-. at offset \d \(key b'k'\): malformed JSON"
    with pytest.raises(BadInput, match=expected):
        bench.run(spec.model_copy(update={"dead_letters": None}))
    assert bench.records(f"{three}-out") == []
    state = bench.newest_run(spec)
    assert (state.state, "malformed JSON" in (state.error or "")) == ("failed", True)
    bench.run(spec)
    assert bench.rows(f"{three}-out") == [{"n": 1, "t": None}]
    assert [one.value for one in bench.records(f"{three}-bad")] == [b"bad"]


def consumed(spark: SparkSession, topic: str) -> int:
    """How many records of a topic the JVM's open consumers have fetched so far."""
    context: Any = spark.sparkContext
    jvm: Any = spark._jvm
    beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()

    def call(method: str, *arguments: Any) -> Any:
        """Call a method of a class that is not exported, so by its interface."""
        (found,) = (one for one in methods if one.getName() == method)
        array = context._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for n, argument in enumerate(arguments):
            array[n] = argument
        return found.invoke(beans, array)

    of_topic = f"kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic={topic}"
    names = call("queryNames", jvm.javax.management.ObjectName(of_topic), None)
    return sum(int(call("getAttribute", name, "records-consumed-total")) for name in names)


def test_records_that_parse_are_read_once(bench: Bench, three: str) -> None:
    """Those of a batch with dead letters a second time, near the dead letters alone."""
    bench.feed(f"{three}-in", *({"n": n} for n in range(3_000)), key=b"k")
    spec = bench.spec(three)
    bench.run(spec)
    first = consumed(bench.spark, f"{three}-in")
    bench.feed(f"{three}-in", *({"n": n} for n in range(2_500)), b"bad", {"n": 1}, key=b"k")
    bench.run(spec)
    second = consumed(bench.spark, f"{three}-in") - first
    assert first <= 3_000
    assert second <= 2_502 + 1_000
    assert len(bench.rows(f"{three}-out")) == 5_501
    assert [one.value for one in bench.records(f"{three}-bad")] == [b"bad"]


def test_json_is_parsed_once_in_a_plan(bench: Bench, three: str) -> None:
    """Each use of a parsed value by a filter would parse it again."""
    bench.feed(f"{three}-in", {"n": 1})
    spec = bench.spec(three, source={"event_time": "timestamp_seconds(n)"})
    with Pipeline(spec, bench.spark, bench.bootstrap) as pipeline:
        query = pipeline.start()
        query.awaitTermination()
        plans: str = query._jsq.explainInternal(True)
    optimized = plans.partition("== Optimized Logical Plan ==")[2]
    assert optimized.partition("== Physical Plan ==")[0].count("from_json") == 1


def test_bad_records_behind_a_limit_are_dead_letters(bench: Bench, three: str) -> None:
    """A limit reads as many rows as it needs."""
    bench.feed(f"{three}-in", *({"n": n} for n in range(9)), b"bad")
    bench.run(bench.spec(three, transform={"sql": "SELECT n, t FROM rows LIMIT 1"}))
    assert len(bench.rows(f"{three}-out")) == 1
    assert [one.value for one in bench.records(f"{three}-bad")] == [b"bad"]


@pytest.fixture
def far(own_broker: str) -> Iterator[str]:
    """Another cluster."""
    with EmbeddedBroker() as broker:
        assert broker.bootstrap != own_broker
        yield broker.bootstrap


def test_a_topic_is_mirrored_from_another_cluster(bench: Bench, far: str) -> None:
    """The example; what is committed there counts for the next run."""
    there = Bench(bench.spark, far, bench.folder)
    for one in (bench, there):
        one.create("customers", partitions=1)
    there.feed("customers", {"n": 1}, key=b"a")
    there.feed_record("customers", None, key=b"a")
    spec = bench.example("mirror")
    source = spec.sources["customers"].model_copy(update={"bootstrap": far})
    spec = spec.model_copy(update={"sources": {"customers": source}})
    bench.run(spec)
    there.feed_record("customers", b"again", key=b"a")
    bench.run(spec)
    assert [(one.key, one.value) for one in bench.records("customers")] == [
        (b"a", b'{"n": 1}'),
        (b"a", None),
        (b"a", b"again"),
    ]
    assert [one.timestamp for one in bench.records("customers")] == [
        one.timestamp for one in there.records("customers")
    ]
    assert bench.lag(spec) == 0


def test_sources_of_two_clusters_have_their_own_dead_letters(
    bench: Bench, far: str, three: str
) -> None:
    """Topics of the same name, at other offsets; one of them by a pattern."""
    there = Bench(bench.spark, far, bench.folder)
    there.create(f"{three}-in", partitions=2)
    bench.feed(f"{three}-in", {"n": 1}, {"n": 2}, b"near", key=b"k")
    there.feed(f"{three}-in", {"n": 3}, b"far", key=b"k")
    near = {"format": "json", "schema": "n INT NOT NULL, t STRING"}
    spec = bench.spec(
        three,
        sources={
            "near": {**near, "topics": [f"{three}-in"]},
            "far": {
                **near,
                "pattern": f"{three}-i.*",
                "bootstrap": far,
                "fail_on_data_loss": False,
                "kafka": {"fetch.max.bytes": 1_000_000},
            },
        },
        transform={"sql": "SELECT n, t FROM far UNION ALL SELECT n, t FROM near"},
    )
    bench.run(spec)
    assert [row["n"] for row in bench.rows(f"{three}-out")] == [1, 2, 3]
    letter_headers = {
        one.value: headers_of(one)["__raylog.errors.offset"]
        for one in bench.records(f"{three}-bad")
    }
    assert letter_headers == {b"near": "2", b"far": "1"}
    found = lags(bench.bootstrap, spec, TIMEOUT_MS)
    assert [(one.source, one.lag) for one in found] == [("near", 0), ("far", 0)]


def test_a_run_that_another_has_displaced_writes_nothing(
    bench: Bench, three: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds out when the batch has its identity, before any row is written."""
    bench.feed(f"{three}-in", {"n": 1})
    spec = bench.spec(three)
    write = Pipeline._write

    def taken_over(pipeline: Pipeline, rows: DataFrame, batch_id: int) -> None:
        held = bench.newest_run(spec)
        place = Place("far", 7, "noon", "another")
        other = replace(held, place=place, run="other", generation=held.generation + 1)
        with RunTopic(bench.bootstrap, three) as topic:
            topic.write(run_key(three), encode(other))
        write(pipeline, rows, batch_id)

    monkeypatch.setattr(Pipeline, "_write", taken_over)
    with pytest.raises(Displaced, match="was taken over by another run: process 7 on far"):
        bench.run(spec)
    assert bench.records(f"{three}-out") == []
    assert bench.newest_run(spec).run == "other"


def test_avro_in_and_out(bench: Bench, three: str) -> None:
    fields = [
        {"name": "n", "type": "int"},
        {"name": "t", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "in",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "I",
                    "fields": [{"name": "x", "type": "double"}],
                },
            },
        },
    ]
    schema = {"type": "record", "name": "Row", "namespace": "a.b", "fields": fields}
    path = bench.folder / "row.avsc"
    path.write_text(json.dumps(schema))
    parsed = fastavro.parse_schema(schema)
    row = {"n": 7, "t": None, "at": datetime(2026, 1, 1, 10, tzinfo=UTC), "in": [{"x": 0.5}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, row)
    whole = stream.getvalue()
    bench.feed(f"{three}-in", whole, whole + b"x", whole[:-4])
    spec = bench.spec(
        three,
        source={"format": "avro", "schema": None, "schema_file": path, "event_time": "at"},
        transform={"sql": "SELECT n, t, at, `in` FROM rows"},
        sink={"topic": f"{three}-out", "value": "avro", "schema_file": path},
    )
    bench.run(spec)
    (found,) = bench.records(f"{three}-out")
    assert fastavro.schemaless_reader(io.BytesIO(found.value or b""), parsed, None) == row
    bad = bench.records(f"{three}-bad")
    assert sorted(one.value or b"" for one in bad) == [whole[:-4], whole + b"x"]
    assert all("not Avro of the schema" in headers_of(o)["__raylog.errors.reason"] for o in bad)
    wrong = spec.model_copy(
        update={"transform": Transform(sql="SELECT n, t, n AS at, `in` FROM rows")}
    )
    with pytest.raises(BadSpec, match="column at: expected timestamp, found int"):
        bench.run(wrong)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sink": {"topic": "nowhere"}}, "sink.topic: there is no topic nowhere"),
        ({"source": {"topics": ["nowhere"]}}, "sources.rows: there is no topic nowhere"),
        ({"transform": {"sql": "SELECT m FROM rows"}}, r"transform.sql: .*`m` cannot be resolved"),
        ({"transform": {"sql": "SELECT 1 AS n"}}, "reads none of the sources"),
        ({"transform": {"function": "json:none"}}, "json has no function none"),
        ({"transform": {"sql": "SELECT t FROM rows"}}, r"sink.key: .*\(t\), found 'n'"),
        ({"source": {"schema": "n NUMBER"}}, "sources.rows.schema: "),
        ({"source": {"schema": "_key INT"}}, "the column _key is one of the view's own"),
        ({"source": {"event_time": "n"}}, "event_time: expected a timestamp, 'n' is int"),
        ({"source": {"event_time": "m"}}, "event_time: .*`m` cannot be resolved"),
        ({"output_mode": "complete"}, "transform: .*[Cc]omplete output mode"),
    ],
)
def test_invalid_pipeline_is_reported_before_it_runs(
    bench: Bench, three: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises((BadSpec, PipelineFailed), match=says):
        bench.run(bench.spec(three, **fields))


def test_a_row_that_is_too_large_is_named(bench: Bench, three: str) -> None:
    bench.feed(f"{three}-in", {"n": 1, "t": "x" * 2_000})
    sink = {"topic": f"{three}-out", "key": ["n"], "row_bytes_max": 1_000}
    with pytest.raises(
        BatchNotWritten, match=r"row 0 of .* \(key b'1'\): 2... bytes, expected at most"
    ):
        bench.run(bench.spec(three, sink=sink))


def test_stopped_pipeline_finishes_the_batch_and_resumes_there(
    bench: Bench, three: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.feed(f"{three}-in", *(b"%d" % n for n in range(9)), b"\xff")
    spec = bench.spec(
        three,
        source={"format": "text", "schema": None, "max_offsets_per_trigger": 3},
        transform={"function": "tests.spark.transforms:doubled"},
        sink={"topic": f"{three}-out", "value": "raw"},
        trigger="100 milliseconds",
    )
    control = Control()
    write = Pipeline._write

    def stopped_meanwhile(pipeline: Pipeline, rows: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            control.stop()
            wait_until(lambda: pipeline.is_stopping, "the run to hear of it")
        write(pipeline, rows, batch_id)

    monkeypatch.setattr(Pipeline, "_write", stopped_meanwhile)
    state = bench.run(spec, control)
    monkeypatch.undo()
    assert (state.state, state.batch_id) == ("stopped", 1)
    written = len(bench.records(f"{three}-out")) + len(bench.records(f"{three}-bad"))
    assert state.rows == written < 10
    assert bench.lag(spec) == 10 - written
    bench.run(spec.model_copy(update={"trigger": AVAILABLE_NOW}))
    assert values(bench.bootstrap, f"{three}-out") == sorted(b"%d" % (2 * n) for n in range(9))
    assert [one.value for one in bench.records(f"{three}-bad")] == [b"\xff"]
    assert bench.lag(spec) == 0
