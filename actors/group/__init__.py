"""Consumer groups: the coordinator's machines and its shell."""
