"""`python -m aiayn`: the same as `aiayn`."""

from aiayn.cli import main

if __name__ == "__main__":  # the server's workers read this module, too
    main()
