"""Logs on disks in memory.

Real: the log, and the volume below the disk, which loses power as in simulations
(`raylog/simulation/volume.py`). Faked: the disk's calls, which fail, write less than asked or end
the process as a test says, and the clock.
"""
