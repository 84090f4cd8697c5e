"""Partition assignors, registered as plug-ins of the entry-point group raylog.assignors."""
