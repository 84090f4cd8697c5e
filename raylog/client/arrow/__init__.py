"""Converts Arrow tables to record batches and back, column by column, without an object per record.

`pyarrow` and `numpy` come with the extra `arrow`; these modules are imported on first use of a
table.
"""

TABLE_BYTES = 16 * 1024 * 1024
"""Default limit on a table's record bytes; exceeded by less than one batch."""
