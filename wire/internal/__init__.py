"""Formats inside records: internal topics, and blobs that clients pass to one another."""
