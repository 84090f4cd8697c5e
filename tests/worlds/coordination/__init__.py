"""What worlds of groups and of transactions share.

Real: steps, and the loading of a shard. Faked: the shell's part in a step, and the log of the
partition that is loaded, which is a file.
"""
