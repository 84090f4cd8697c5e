"""What a pipeline's file sets for the sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.raydp_jobs.pipelines.pipeline import sink_settings
from raylog.raydp_jobs.pipelines.spec import PipelineSpec
from raylog.sink.writer import WriterSettings
from raylog.wire.compression import Codec


def settings_of(tmp_path: Path, **sink: object) -> WriterSettings:
    spec = PipelineSpec.model_validate(
        {
            "name": "p",
            "checkpoint": tmp_path,
            "sources": {"rows": {"topics": ["in"], "format": "binary"}},
            "transform": {"sql": "SELECT value FROM rows"},
            "sink": {"topic": "out", **sink},
        }
    )
    return sink_settings(spec).writer


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("none", Codec.NONE, None),
        ("gzip", Codec.GZIP, 9),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 17),
        ("zstd", Codec.ZSTD, -131_072),
        ("zstd", Codec.ZSTD, 22),
    ],
)
def test_compression_has_kafkas_names_and_levels(
    tmp_path: Path, name: str, codec: Codec, level: int | None
) -> None:
    found = settings_of(tmp_path, compression=name, compression_level=level)
    assert (found.codec, found.codec_level) == (codec, level)


def test_nothing_is_compressed_unless_asked_for(tmp_path: Path) -> None:
    assert settings_of(tmp_path).codec is Codec.NONE
