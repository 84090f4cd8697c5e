"""The metric families: a module per area, listed in `table`."""
