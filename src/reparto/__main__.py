"""``python -m reparto`` is the command ``reparto``."""

import sys

from reparto.cli import main

if __name__ == "__main__":
    sys.exit(main())
