"""The table of metric families: a module for each area, listed in `table`."""
