"""Pipeline files: what is valid, and the errors for what is not."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import ValidationError

from raylog.raydp_jobs.pipelines.spec import (
    BATCH_OFFSETS_MAX,
    BadSpec,
    FileTable,
    ParquetSink,
    PipelineSpec,
    TopicSink,
    TopicSource,
    TopicTable,
    Transform,
    load,
)

EXAMPLES = Path(__file__).resolve().parents[4] / "docs" / "examples" / "pipelines"
WHOLE = """
name = "counts"
checkpoint = "checkpoints/counts"
dead_letters = "bad"

[sources.views]
topics = ["views"]
format = "json"
schema = "page STRING"

[transform]
sql = "SELECT * FROM views"

[sink]
topic = "out"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A whole pipeline."""
    return written(tmp_path, WHOLE)


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["counts", "paid-orders", "landing", "mirror"])
def test_the_examples_load(name: str) -> None:
    spec = load(EXAMPLES / f"{name}.toml")
    assert spec.bootstrap == "127.0.0.1:9092"
    assert spec.checkpoint == EXAMPLES / "checkpoints" / spec.name


def test_defaults_and_paths_that_begin_at_the_file(file: Path, tmp_path: Path) -> None:
    spec = load(file)
    assert spec.checkpoint == tmp_path / "checkpoints" / "counts"
    assert (spec.trigger, spec.output_mode, spec.bootstrap) == ("1 second", "append", None)
    assert spec.sources["views"].starting == "earliest"
    assert spec.written_topics() == ["out", "bad"]
    assert spec.sources["views"].max_offsets_per_trigger == BATCH_OFFSETS_MAX


def test_paths_in_tables_and_sinks_begin_at_the_file_too(tmp_path: Path) -> None:
    text = WHOLE.replace('topic = "out"', 'path = "landed"') + dedent(
        """
        [tables.codes]
        path = "/codes.csv"
        format = "csv"
        schema = "code STRING"

        [spark]
        jars = "jars"
        configs = { "spark.sql.ansi.enabled" = "true" }
        """
    )
    spec = load(written(tmp_path, text))
    assert spec.sink == ParquetSink(path=tmp_path / "landed")
    assert spec.written_topics() == ["bad"]
    assert spec.tables["codes"] == FileTable(
        path=Path("/codes.csv"), format="csv", schema="code STRING"
    )
    assert spec.spark.jars == tmp_path / "jars"
    assert spec.spark.configs == {"spark.sql.ansi.enabled": "true"}


def test_the_same_in_python(file: Path, tmp_path: Path) -> None:
    made = PipelineSpec(
        name="counts",
        checkpoint=tmp_path / "checkpoints" / "counts",
        dead_letters="bad",
        sources={"views": TopicSource(topics=["views"], format="json", schema="page STRING")},
        transform=Transform(sql="SELECT * FROM views"),
        sink=TopicSink(topic="out"),
    )
    assert made == load(file)


def test_a_table_of_a_topic(tmp_path: Path) -> None:
    table = '[tables.users]\ntopic = "users"\nformat = "avro"\nschema_file = "user.avsc"\n'
    spec = load(written(tmp_path, WHOLE + table))
    expected = TopicTable(topic="users", format="avro", schema_file=tmp_path / "user.avsc")
    assert spec.tables == {"users": expected}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "counts"', "", "name: is missing"),
        ('name = "counts"', 'name = "a b"', "name: String should match pattern"),
        ('name = "counts"', "name = 7", "name: Input should be a valid string, found 7"),
        (
            "dead_letters",
            "dead_leters",
            "dead_leters: there is no such field; did you mean dead_letters?",
        ),
        ("[sources.views]", "[sources.1st]", "sources.1st.[key]: String should match"),
        ('topics = ["views"]', "topics = []", "sources.views: expected one of topics, pattern"),
        ('topics = ["views"]', "", "sources.views: expected one of topics, pattern"),
        ("format", 'pattern = "v.*"\nformat', "sources.views: expected one of topics, pattern"),
        (
            'topics = ["views"]',
            'pattern = "v("',
            "sources.views.pattern: expected a regular expression",
        ),
        ('topics = ["views"]', 'pattern = ".*"', "sink.topic: out is read by views"),
        ('topics = ["views"]', 'pattern = "v|bad"', "dead_letters: bad is read by views"),
        ("format", "fail_on_data_loss = 1\nformat", "views.fail_on_data_loss: Input should be a"),
        ("format", "bootstrap = 9092\nformat", "sources.views.bootstrap: Input should be a valid"),
        (
            "format",
            'kafka = "x"\nformat',
            "sources.views.kafka: Input should be a valid dictionary",
        ),
        (
            "format",
            'kafka."isolation.level" = "read_uncommitted"\nformat',
            "sources.views.kafka: isolation.level: not expected here: sources are read with",
        ),
        (
            "format",
            'kafka.bootstrap.servers = "a:1"\nformat',
            "sources.views.kafka: bootstrap.servers: not expected here: it is the source's field",
        ),
        (
            "format",
            "kafka.fetch.max.bytes = [1]\nformat",
            "sources.views.kafka: fetch.max.bytes: expected text, a number or a boolean, found [1]",
        ),
        ('"json"', '"xml"', "sources.views.format: Input should be 'json', 'avro', 'text'"),
        ('"json"', '"text"', "sources.views: schema: not expected with format 'text'"),
        ('schema = "page STRING"', "", "sources.views: schema: expected with format 'json'"),
        ('"json"', '"avro"', "sources.views: schema: not expected with format 'avro'"),
        ("format", 'watermark = "1 hour"\nformat', "views: watermark: expected together with"),
        ("format", 'starting = "begin"\nformat', "views.starting: expected 'earliest', 'latest'"),
        ("format", "max_offsets_per_trigger = 0\nformat", "should be greater than or equal to 1"),
        ("format", 'event_time = "at"\nwatermark = "1h"\nformat', "expected a duration as in"),
        ("sql", "sqll", "transform.sqll: there is no such field; did you mean sql?"),
        (
            "format",
            'starting_offsets = "earliest"\nformat',
            "sources.views.starting_offsets: there is no such field; did you mean starting?",
        ),
        ("sql", "x = 1\nsql", "transform.x: there is no such field; there are function, sql"),
        (
            'topic = "out"',
            'topic = "out"\ncompresion = "zstd"',
            "sink.compresion: there is no such field; did you mean compression?",
        ),
        ("[sink]", 'function = "a:b"\n[sink]', "transform: expected one of sql, function"),
        ('sql = "SELECT * FROM views"', 'function = "a"', "transform.function: String should"),
        ('topic = "out"', "", "sink.topic: is missing"),
        ('topic = "out"', 'topic = "views"', "sink.topic: views is read by views"),
        ('topic = "out"', 'topic = "bad"', "dead_letters: bad is the sink's topic"),
        (
            'topic = "out"',
            'path = "x"\nkey = ["a"]',
            "sink.key: there is no such field; there are path",
        ),
        ('topic = "out"', 'topic = "out"\nvalue = "avro"', "sink: schema_file: expected with"),
        ('topic = "out"', 'topic = "out"\nvalue = "raw"\nkey = ["a"]', "sink: key: with value"),
        (
            'topic = "out"',
            'topic = "out"\ncompression = "zip"',
            "sink.compression: Input should be",
        ),
        (
            'topic = "out"',
            'topic = "out"\ncompression_level = 1',
            "sink: compression_level: not expected with compression 'none'",
        ),
        (
            'topic = "out"',
            'topic = "out"\ncompression = "gzip"\ncompression_level = 10',
            "sink: compression_level: expected 1 to 9 with compression 'gzip', found 10",
        ),
        ('dead_letters = "bad"', 'trigger = "now"', "trigger: expected a duration as in"),
        ('dead_letters = "bad"', 'dead_letters = "views"', "dead_letters: views is read by views"),
        ("[sink]", '[sources.b]\ntopics=["views"]\nformat="text"\n[sink]', "is read by views, too"),
        ("[sink]", '[tables.views]\ntopic="t"\nformat="text"\n[sink]', "tables: views is a source"),
        ("[sink]", '[tables.t]\npath="t"\nformat="csv"\n[sink]', "tables.t: schema: expected with"),
        ("[sink]", "[sink", "Expected ']'"),
    ],
)
def test_a_mistake_is_named_with_its_field(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in WHOLE
    path = written(tmp_path, WHOLE.replace(old, new, 1))
    with pytest.raises(BadSpec) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert says in str(raised.value)


def test_settings_of_kafka_are_what_kafka_reads(tmp_path: Path) -> None:
    """Quoted or bare, as text or not."""
    lines = """kafka.security.protocol = "SSL"
        kafka."fetch.max.bytes" = 1_048_576
        kafka.check.crcs = false
        format"""
    spec = load(written(tmp_path, WHOLE.replace("format", lines, 1)))
    assert spec.sources["views"].kafka == {
        "security.protocol": "SSL",
        "fetch.max.bytes": "1048576",
        "check.crcs": "false",
    }


def test_topics_of_another_cluster_may_have_any_name(tmp_path: Path) -> None:
    """That of the sink, or of another source."""
    other = '[sources.b]\ntopics = ["views"]\nformat = "text"\nbootstrap = "far:9092"\n[sink]'
    text = WHOLE.replace("[sink]", other).replace('topic = "out"', 'topic = "mirrored"')
    text = text.replace('format = "text"', 'format = "text"\npattern = "mirrored|bad"')
    text = text.replace('topics = ["views"]\nformat = "text"', 'format = "text"')
    spec = load(written(tmp_path, text))
    assert spec.sources["b"].reads("mirrored")
    twice = WHOLE.replace("[sink]", other)
    assert load(written(tmp_path, twice)).sources.keys() == {"views", "b"}


def test_tables_may_be_on_another_cluster(tmp_path: Path) -> None:
    table = '[tables.t]\ntopic = "t"\nformat = "text"\nbootstrap = "far:9092"\n[sink]'
    table = table.replace("[sink]", 'kafka.client.id = "t"\n[sink]')
    found = load(written(tmp_path, WHOLE.replace("[sink]", table))).tables["t"]
    assert isinstance(found, TopicTable)
    assert (found.bootstrap, found.kafka) == ("far:9092", {"client.id": "t"})


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE.replace('"counts"', "1").replace('"out"', "2"))
    with pytest.raises(BadSpec, match=r"name: .*; sink.topic: .*"):
        load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="there is no such file"):
        load(tmp_path / "none.toml")


def test_folders_take_rows_that_are_done(file: Path) -> None:
    text = file.read_text().replace('topic = "out"', 'path = "x"')
    with pytest.raises(BadSpec, match="output_mode: expected 'append' with a folder"):
        load(written(file.parent, 'output_mode = "update"\n' + text))


def test_in_python_a_mistake_is_pydantics() -> None:
    with pytest.raises(ValidationError, match="expected one of sql, function"):
        Transform(sql="SELECT 1", function="a:b")
