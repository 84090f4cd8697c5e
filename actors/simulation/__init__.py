"""Whole clusters of the real actors under one seed: virtual time, a network and disks that fail."""
