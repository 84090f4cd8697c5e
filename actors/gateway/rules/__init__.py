"""Decides from the metadata what a gateway answers and refuses. No I/O."""
