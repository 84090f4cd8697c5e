"""Functions that pipelines name as their transform."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def doubled(spark: SparkSession, views: dict[str, DataFrame]) -> DataFrame:
    """Numbers as text, twice as large."""
    return views["rows"].selectExpr("cast(2 * cast(value as int) as string) as value")
