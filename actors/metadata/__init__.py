"""Cluster metadata: the records of its log, and the image that they build."""
