"""A consumer's group membership: state machines without I/O for both group protocols."""
