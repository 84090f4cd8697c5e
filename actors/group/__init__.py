"""Consumer groups: the coordinator's rules and its shell."""
