"""``python -m staticgrad`` and the command ``staticgrad``."""

from __future__ import annotations

import sys

from staticgrad.tools.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
