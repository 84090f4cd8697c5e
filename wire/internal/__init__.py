"""Formats inside records: internal topics, and blobs that clients exchange."""
