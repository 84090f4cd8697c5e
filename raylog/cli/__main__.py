"""`python -m raylog.cli`."""

from raylog.cli import main

main()
