"""The supervisor: starts brokers on the nodes where they are wanted."""
