"""The controller's machine with brokers that a test registers.

Real: the machine, and the replay of its decisions. Faked: the metadata log, brokers, clock.
"""
