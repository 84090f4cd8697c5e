"""Administration of a cluster."""
