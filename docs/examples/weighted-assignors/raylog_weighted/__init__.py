"""Assignors for Raylog."""
