"""`python -m aiayn`: the same as `aiayn`."""

from aiayn.cli import main

main()
