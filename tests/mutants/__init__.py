"""Mutation testing: small mistakes drawn from a seed, and the tests that find them.

`operators.py` lists every mistake that can be made in a file, `drawing.py` draws some of them,
`running.py` makes one after the other in a copy of the tree and runs tests there until one fails.
First come unit tests that execute the line: `recording.py` measures which do, `covering.py` keeps
that for each state of the sources.

Mistakes are made in the bodies of functions. Log messages, docstrings, annotations, assertions,
`__repr__` and the texts of errors are left alone. A mistake is passed over only if the file does
not compile with it, or is the same program. One that mypy would refuse, or that ends in a
TypeError, stays in the list like any other. So does one that changes nothing that can be observed:
say why beside it.
"""
