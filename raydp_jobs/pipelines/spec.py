"""The models of a pipeline file: strict, and unknown fields are refused.

A file is TOML; `docs/pipelines.md` describes each field. In Python the same names are arguments.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from raylog.raydp_jobs.pipelines.mistakes import describe
from raylog.wire.compression import LEVELS

AVAILABLE_NOW = "available-now"
"""The trigger of a pipeline that ends when it has read everything."""
BATCH_OFFSETS_MAX = 1_000_000
"""The maximum number of a source's records in a batch, unless the source sets its own."""
_DURATION = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")
_NOT_KAFKA = {
    "bootstrap.servers": "it is the source's field bootstrap",
    "isolation.level": "sources are read with read_committed",
    "auto.offset.reset": "it is the source's field starting",
    "enable.auto.commit": "offsets are in the checkpoint",
    "key.deserializer": "keys are bytes",
    "value.deserializer": "it is the source's field format",
    "interceptor.classes": "Spark does not allow it",
}
"""Consumer settings that a source has fields for, or that are fixed."""
_LEVELS = {codec.label: (levels.low, levels.high) for codec, levels in LEVELS.items()}
"""Lowest and highest level of codecs that have levels."""


class BadSpec(ValueError):
    """A pipeline that is not valid; the message names the field."""


def _duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise ValueError("expected a duration as in '10 seconds'")
    return text


def _trigger(text: str) -> str:
    if text != AVAILABLE_NOW and not _DURATION.fullmatch(text):
        raise ValueError(f"expected a duration as in '10 seconds', or '{AVAILABLE_NOW}'")
    return text


def _starting(start: str | int) -> str | int:
    if isinstance(start, int) or start in {"earliest", "latest"}:
        return start
    try:
        is_offsets = isinstance(json.loads(start), dict)
    except ValueError:
        is_offsets = False
    if not is_offsets:
        raise ValueError(
            "expected 'earliest', 'latest', ms since 1970 as a number, or offsets as in "
            '\'{"topic": {"0": 17}}\''
        )
    return start


def _kafka(found: object) -> object:
    """Convert settings to dotted names: a bare `kafka.fetch.max.bytes` is nested tables in TOML."""
    if not isinstance(found, Mapping):
        return found
    return {name: _setting(name, value) for name, value in _dotted(found, "")}


def _dotted(found: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Yield values of nested tables by their dotted names."""
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _setting(name: str, value: object) -> str:
    """Convert a consumer setting to Kafka's text form."""
    refused = _NOT_KAFKA.get(name)
    if refused is not None:
        raise ValueError(f"{name}: not expected here: {refused}")
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise ValueError(f"{name}: expected text, a number or a boolean, found {value!r}")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as failure:
        raise ValueError(f"expected a regular expression: {failure}") from None
    return text


Duration = Annotated[str, AfterValidator(_duration)]
Trigger = Annotated[str, AfterValidator(_trigger)]
Starting = Annotated[str | int, AfterValidator(_starting)]
KafkaSettings = Annotated[dict[str, str], BeforeValidator(_kafka)]
"""Settings of Kafka's consumers, by name."""
RegistryUrl = Annotated[str, Field(pattern=r"^https?://")]
"""One or more URLs of a schema registry, separated by commas."""
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
"""A regular expression for whole topic names."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=200)]
"""The name of a pipeline or a topic."""
ViewName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
FilePath = Annotated[Path, Field(strict=False)]
"""Relative paths start at the pipeline file's folder."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _expect(form: str, name: str, value: object, of: tuple[str, ...], word: str = "format") -> None:
    """Raise ValueError unless a field is set for these formats and only for these."""
    if (value is not None) != (form in of):
        expected = "expected" if value is None else "not expected"
        raise ValueError(f"{name}: {expected} with {word} '{form}'")


def _check_registry(found: _Encoded | TopicSink, form: str, word: str = "format") -> None:
    """Raise ValueError for fields that need a registry without one, or the reverse."""
    if found.registry is None and form in ("json-schema", "protobuf"):
        raise ValueError(f"registry: expected with {word} '{form}'")
    if found.registry is not None and form not in ("avro", "json-schema", "protobuf"):
        raise ValueError(f"registry: not expected with {word} '{form}'")
    if found.subject is not None and found.registry is None:
        raise ValueError("subject: expected together with registry")
    if found.message is not None and form != "protobuf":
        raise ValueError(f"message: not expected with {word} '{form}'")


class _Encoded(_Model):
    """The format of records' values and how they become columns."""

    format: Literal["json", "avro", "text", "binary", "json-schema", "protobuf"]
    ddl: str | None = Field(None, alias="schema")
    """Columns of JSON objects in Spark's DDL: "id BIGINT NOT NULL, at TIMESTAMP"."""
    schema_file: FilePath | None = None
    """The Avro schema; with a registry, the reader's schema that values are resolved to."""
    registry: RegistryUrl | None = None
    """The schema registry, for values in its wire format."""
    subject: str | None = None
    """The subject with the schema of the columns; None: TOPIC-value."""
    message: str | None = None
    """The message of a Protobuf file; None: its first."""

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        _expect(self.format, "schema", self.ddl, ("json", "json-schema"))
        _check_registry(self, self.format)
        if self.registry is None or self.schema_file is not None:
            _expect(self.format, "schema_file", self.schema_file, ("avro",))
        return self


class _OfCluster(_Encoded):
    """Where records come from, and how they are read."""

    bootstrap: str | None = None
    """host:port of another cluster's brokers; None: those of the pipeline."""
    kafka: KafkaSettings = {}
    """Settings of Kafka's consumers, such as security.protocol."""


class TopicSource(_OfCluster):
    """Topics that are read as a stream."""

    topics: list[Name] = []
    pattern: Pattern | None = None
    """A pattern for topic names, instead of `topics`; topics created later are read as well."""
    fail_on_data_loss: bool = True
    """Whether the pipeline stops if records were deleted before they were read."""
    starting: Starting = "earliest"
    """Where a new query begins; an existing one continues where it was."""
    max_offsets_per_trigger: int = Field(BATCH_OFFSETS_MAX, ge=1)
    """For all partitions together: a backlog is read in several batches."""
    event_time: str | None = None
    """A SQL timestamp expression, often a column's name, for the view's column `event_time`."""
    watermark: Duration | None = None
    """How late rows may be, by `event_time`."""
    tombstones: Literal["pass", "drop", "refuse"] = "pass"
    """Records without a value become rows of nulls (pass), no rows, or dead letters (refuse)."""

    def reads(self, topic: str) -> bool:
        """Return whether a topic of the source's cluster belongs to the source."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("expected one of topics, pattern")
        return self

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        """Require a single subject if columns come from the registry."""
        needs_one = self.registry is not None and (
            self.format == "protobuf" or (self.format == "avro" and self.schema_file is None)
        )
        if needs_one and self.subject is None and len(self.topics) != 1:
            raise ValueError("subject: expected with several topics or a pattern")
        return self

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        if self.watermark is not None and self.event_time is None:
            raise ValueError("watermark: expected together with event_time")
        return self


class TopicTable(_OfCluster):
    """A compacted topic, reread for each batch: the newest value of each key."""

    topic: Name


class FileTable(_Model):
    """Files that Spark reads, again for each batch."""

    path: FilePath
    format: Literal["parquet", "csv", "json"]
    ddl: str | None = Field(None, alias="schema")

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.ddl is None) != (self.format == "parquet"):
            word = "not expected" if self.format == "parquet" else "expected"
            raise ValueError(f"schema: {word} with format '{self.format}'")
        return self


class Transform(_Model):
    """One query over the views, as SQL or as a function."""

    sql: str | None = None
    function: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None
    """MODULE:NAME of a function that takes (spark, views by name) and returns a DataFrame."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.sql is None) == (self.function is None):
            raise ValueError("expected one of sql, function")
        return self


class TopicSink(_Model):
    """A topic to write rows to."""

    topic: Name
    key: list[str] = []
    """Columns of the key: one as text, several as a JSON object. Empty: no key."""
    value: Literal["json", "avro", "raw", "json-schema", "protobuf"] = "json"
    """raw: the columns are those of `raylog.sink.rows`."""
    schema_file: FilePath | None = None
    """The Avro schema; with a registry, the schema to register."""
    registry: RegistryUrl | None = None
    """The schema registry, for values in its wire format."""
    subject: str | None = None
    """The subject for the schema; None: TOPIC-value."""
    message: str | None = None
    """The message of a Protobuf file; None: its first."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """The compression of records, including dead letters, before they leave the executors."""
    compression_level: int | None = None
    """None: the codec's default."""
    row_bytes_max: int = Field(1_000_000, ge=1)
    transaction_timeout_ms: int = Field(300_000, ge=1)

    @model_validator(mode="after")
    def _check_level(self) -> Self:
        level = self.compression_level
        if level is None:
            return self
        if self.compression not in _LEVELS:
            raise ValueError(
                f"compression_level: not expected with compression '{self.compression}'"
            )
        lowest, highest = _LEVELS[self.compression]
        if not lowest <= level <= highest:
            raise ValueError(
                f"compression_level: expected {lowest} to {highest} with compression "
                f"'{self.compression}', found {level}"
            )
        return self

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        _check_registry(self, self.value, "value")
        if self.registry is None:
            _expect(self.value, "schema_file", self.schema_file, ("avro",), "value")
        if self.key and self.value == "raw":
            raise ValueError("key: with value 'raw' it is a column, not a list of them")
        return self


class ParquetSink(_Model):
    """A folder for rows as Parquet files: a folder `batch=N` for each batch."""

    path: FilePath


class SparkPart(_Model):
    """The cluster resources of a pipeline; see `raylog.raydp_jobs.session`."""

    executors: int = Field(1, ge=1)
    executor_cores: int = Field(1, ge=1)
    executor_memory: str = "1g"
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] | None = None
    jars: FilePath | None = None
    configs: dict[str, str] = {}


def _tag(at: str, tagged: str, other: str) -> Discriminator:
    """Return a discriminator of two models: `tagged` has the field `at`, `other` does not."""

    def tag(found: Any) -> str:
        has = at in found if isinstance(found, Mapping) else hasattr(found, at)
        return tagged if has else other

    return Discriminator(tag)


Table = Annotated[
    Annotated[TopicTable, Tag("of a topic")] | Annotated[FileTable, Tag("of files")],
    _tag("topic", "of a topic", "of files"),
]
Sink = Annotated[
    Annotated[ParquetSink, Tag("to files")] | Annotated[TopicSink, Tag("to a topic")],
    _tag("path", "to files", "to a topic"),
]
_TAGS: dict[str, type[BaseModel]] = {
    "of a topic": TopicTable,
    "of files": FileTable,
    "to files": ParquetSink,
    "to a topic": TopicSink,
}


class PipelineSpec(_Model):
    """One pipeline."""

    name: Name
    """Also the sink's id: must be unique among the cluster's pipelines."""
    bootstrap: str | None = None
    """host:port of the brokers that are written to, and read from unless a source says otherwise;
    None: those of the cluster that runs on `data`."""
    data: FilePath | None = None
    """The cluster's data directory, `raylog up --data`."""
    checkpoint: FilePath
    """The query's checkpoint; a folder that the driver and all executors share."""
    sources: dict[ViewName, TopicSource] = Field(min_length=1)
    tables: dict[ViewName, Table] = {}
    transform: Transform
    sink: Sink
    dead_letters: Name | None = None
    """The topic for records that do not parse; None: such a record fails the pipeline."""
    output_mode: Literal["append", "update", "complete"] = "append"
    trigger: Trigger = "1 second"
    spark: SparkPart = SparkPart()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        twice = self.sources.keys() & self.tables.keys()
        if twice:
            raise ValueError(f"tables: {', '.join(sorted(twice))} is a source, too")
        of_topic: dict[tuple[str | None, str], str] = {}
        for name, source in self.sources.items():
            for topic in source.topics:
                other = of_topic.setdefault((source.bootstrap, topic), name)
                if other != name:
                    raise ValueError(
                        f"sources.{name}.topics: {topic} is read by {other}, too: "
                        "use that view twice"
                    )
        for field, written in self.written().items():
            for name, source in self.sources.items():
                if source.bootstrap is None and source.reads(written):
                    raise ValueError(f"{field}: {written} is read by {name}")
        if self.dead_letters is not None and self.dead_letters == self.sink_topic:
            raise ValueError(f"dead_letters: {self.dead_letters} is the sink's topic")
        return self

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if isinstance(self.sink, ParquetSink) and self.output_mode != "append":
            raise ValueError("output_mode: expected 'append' with a folder")
        return self

    @property
    def sink_topic(self) -> str | None:
        """The topic of rows; None: rows land in a folder."""
        return self.sink.topic if isinstance(self.sink, TopicSink) else None

    def written(self) -> dict[str, str]:
        """Return all topics that are written to, by the field that names them."""
        found = {"sink.topic": self.sink_topic, "dead_letters": self.dead_letters}
        return {field: topic for field, topic in found.items() if topic is not None}

    def written_topics(self) -> list[str]:
        """Return all topics that are written to."""
        return list(self.written().values())


def load(path: Path) -> PipelineSpec:
    """Read a file; raise BadSpec."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadSpec(f"{path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise BadSpec(f"{path}: {failure}") from None
    try:
        spec = PipelineSpec.model_validate(found)
    except ValidationError as failure:
        mistakes = (describe(one, PipelineSpec, _TAGS) for one in failure.errors(include_url=False))
        raise BadSpec(f"{path}: {'; '.join(mistakes)}") from None
    resolved: PipelineSpec = _resolved(spec, path.absolute().parent)
    return resolved


def _resolved(found: Any, base: Path) -> Any:
    """Return a copy of models in which relative paths start at `base`."""
    match found:
        case Path():
            return base / found
        case BaseModel():
            fields = type(found).model_fields
            changed = {name: _resolved(getattr(found, name), base) for name in fields}
            return found.model_copy(update=changed)
        case dict():
            return {key: _resolved(value, base) for key, value in found.items()}
        case _:
            return found
