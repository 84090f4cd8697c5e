"""The segmented log of one partition replica on one disk."""
