"""Partition assignors, which are plug-ins of the entry-point group raylog.assignors."""
