"""Mutation testing: small mistakes drawn from a seed, and the tests that find them.

`operators.py` lists all mistakes that can be made in a file, `drawing.py` draws some of them,
`running.py` makes one after another in a copy of the tree and runs tests there until one fails.
Unit tests that execute the line run first: `recording.py` finds them, and `covering.py` stores the
result for each state of the sources.

Mistakes are made in the bodies of functions. Log messages, docstrings, annotations, assertions,
`__repr__` and error texts are left alone. A mistake is skipped only if the file does not compile
with it, or is the same program. One that mypy would reject, or that ends in a TypeError, stays in
the list. So does one without observable effect; document the reason next to it.
"""
