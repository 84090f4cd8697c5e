"""A gateway under a clock that the test moves.

Real: connections, decoding, handlers. Faked: clients, Replica actors, controller, broker.
"""
