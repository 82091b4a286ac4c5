"""The entry point of the command; handles Ctrl-C also while modules are being imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Loads the command line and runs it."""
    try:
        from trimtab.cli import main as loaded
    except KeyboardInterrupt:
        sys.exit(130)
    loaded.main()
