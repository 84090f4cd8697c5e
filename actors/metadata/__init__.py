"""Cluster metadata: the records of its log and the image they add up to."""
