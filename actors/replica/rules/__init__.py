"""What a partition's leader and followers decide. Pure."""
