"""What a pipeline file says, as models: strict, and unknown fields are refused.

A file is TOML; `docs/pipelines.md` tells of each field. In Python the same names are arguments.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

AVAILABLE_NOW = "available-now"
"""The trigger of a pipeline that ends when it has read what there was."""
_DURATION = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")
_VALUE_SHOWN = 60
_LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
"""Lowest and highest level of codecs that have levels, as Kafka's producers take them (KIP-390)."""


class BadSpec(ValueError):
    """A pipeline that makes no sense; the message names the field."""


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


Duration = Annotated[str, AfterValidator(_duration)]
Trigger = Annotated[str, AfterValidator(_trigger)]
Starting = Annotated[str | int, AfterValidator(_starting)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=200)]
"""Of pipelines and topics."""
ViewName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
FilePath = Annotated[Path, Field(strict=False)]
"""Relative ones begin at the pipeline's file."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Encoded(_Model):
    """Values of records and how they become columns."""

    format: Literal["json", "avro", "text", "binary"]
    ddl: str | None = Field(None, alias="schema")
    """Columns of JSON objects as Spark writes them: "id BIGINT NOT NULL, at TIMESTAMP"."""
    schema_file: FilePath | None = None
    """The Avro schema."""

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        for name, is_there, of in (
            ("schema", self.ddl is not None, "json"),
            ("schema_file", self.schema_file is not None, "avro"),
        ):
            if is_there != (self.format == of):
                word = "not expected" if is_there else "expected"
                raise ValueError(f"{name}: {word} with format '{self.format}'")
        return self


class TopicSource(_Encoded):
    """Topics that are read as a stream."""

    topics: list[Name] = Field(min_length=1)
    starting: Starting = "earliest"
    """Where a new query begins; an old one goes on where it was."""
    max_offsets_per_trigger: int | None = Field(None, ge=1)
    event_time: str | None = None
    """SQL of a timestamp, often a column's name: the view's column `event_time`."""
    watermark: Duration | None = None
    """How late rows may be, by `event_time`."""
    tombstones: Literal["pass", "drop", "refuse"] = "pass"
    """Records without a value: rows of nulls, no rows, or records that do not parse."""

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        if self.watermark is not None and self.event_time is None:
            raise ValueError("watermark: expected together with event_time")
        return self


class TopicTable(_Encoded):
    """A compacted topic, read anew for each batch: the newest value of each key."""

    topic: Name


class FileTable(_Model):
    """Files that Spark reads, anew for each batch."""

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
    """MODULE:NAME of what takes (spark, views by name) and returns a DataFrame."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.sql is None) == (self.function is None):
            raise ValueError("expected one of sql, function")
        return self


class TopicSink(_Model):
    """A topic to write rows to."""

    topic: Name
    key: list[str] = []
    """Columns of the key: one as text, several as a JSON object. None: no key."""
    value: Literal["json", "avro", "raw"] = "json"
    """raw: the columns are those of `raylog.raydp_jobs.rows`."""
    schema_file: FilePath | None = None
    """The Avro schema."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Of the records, dead letters included, before they leave the executors."""
    compression_level: int | None = None
    """None: the codec's own."""
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
        if (self.schema_file is None) == (self.value == "avro"):
            word = "expected" if self.value == "avro" else "not expected"
            raise ValueError(f"schema_file: {word} with value '{self.value}'")
        if self.key and self.value == "raw":
            raise ValueError("key: with value 'raw' it is a column, not a list of them")
        return self


class ParquetSink(_Model):
    """A folder to land rows in, as Parquet: a folder `batch=N` for each batch."""

    path: FilePath


class SparkPart(_Model):
    """What the pipeline takes of the cluster; `raylog.raydp_jobs.session` tells more."""

    executors: int = Field(1, ge=1)
    executor_cores: int = Field(1, ge=1)
    executor_memory: str = "1g"
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] | None = None
    jars: FilePath | None = None
    configs: dict[str, str] = {}


def _tag(at: str, tagged: str, other: str) -> Discriminator:
    """Which of two models is meant: the one with the field `at`, or the other one."""

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
_TAGS = frozenset({"of a topic", "of files", "to files", "to a topic"})


class PipelineSpec(_Model):
    """One pipeline."""

    name: Name
    """The sink's id as well: of one pipeline at a time on a cluster."""
    bootstrap: str | None = None
    """host:port of brokers; None: those of the cluster that runs on `data`."""
    data: FilePath | None = None
    """The folder of `raylog up --data`."""
    checkpoint: FilePath
    """Of the query; a folder that the driver and all executors see."""
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
        of_topic: dict[str, str] = {}
        for name, source in self.sources.items():
            for topic in source.topics:
                if topic in of_topic:
                    raise ValueError(
                        f"sources.{name}.topics: {topic} is read by {of_topic[topic]}, too: "
                        "use that view twice"
                    )
                of_topic[topic] = name
        for field, written in (
            ("sink.topic", self.sink_topic),
            ("dead_letters", self.dead_letters),
        ):
            if written in of_topic:
                raise ValueError(f"{field}: {written} is read by {of_topic[written]}")
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
        """None: rows land in a folder."""
        return self.sink.topic if isinstance(self.sink, TopicSink) else None

    @property
    def source_topics(self) -> list[str]:
        """All topics that are read as streams."""
        return [topic for source in self.sources.values() for topic in source.topics]

    def written_topics(self) -> list[str]:
        """All topics that are written to; the first carries the sink's mark."""
        return [topic for topic in (self.sink_topic, self.dead_letters) if topic is not None]


def load(path: Path) -> PipelineSpec:
    """Read a file; raises BadSpec."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadSpec(f"{path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise BadSpec(f"{path}: {failure}") from None
    try:
        spec = PipelineSpec.model_validate(found)
    except ValidationError as failure:
        told = "; ".join(map(_told, failure.errors(include_url=False)))
        raise BadSpec(f"{path}: {told}") from None
    resolved: PipelineSpec = _resolved(spec, path.absolute().parent)
    return resolved


def _told(error: ErrorDetails) -> str:
    """One mistake: field, what is expected, what was found."""
    where = ".".join(str(part) for part in error["loc"] if part not in _TAGS)
    text = error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "extra_forbidden":
            text = "there is no such field"
        case "missing":
            text = "is missing"
        case "value_error" if isinstance(error["input"], Mapping | BaseModel):
            pass
        case _:
            text += f", found {repr(error['input'])[:_VALUE_SHOWN]}"
    return f"{where}: {text}" if where else text


def _resolved(found: Any, base: Path) -> Any:
    """A copy of models in which relative paths begin at `base`."""
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
