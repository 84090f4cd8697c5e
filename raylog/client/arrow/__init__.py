"""Whole columns in and out: Arrow tables to record batches and back, no object for a record.

`pyarrow` and `numpy` are of the extra `arrow`; modules here are imported when a table is asked for.
"""

TABLE_BYTES = 16 * 1024 * 1024
"""Of a table's records, unless a caller wants others; exceeded by less than one batch."""
