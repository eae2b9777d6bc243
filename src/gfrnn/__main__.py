"""`python -m gfrnn` is the `gfrnn` command (torchrun starts it this way)."""

import sys

from gfrnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
