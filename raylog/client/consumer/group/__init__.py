"""Membership of a consumer in its group: machines without I/O for both protocols."""
