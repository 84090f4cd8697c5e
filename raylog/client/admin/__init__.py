"""Looking at a cluster and changing it."""
