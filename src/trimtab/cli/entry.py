"""Where the command begins: Ctrl-C while modules are still loaded ends it as it does later."""

from __future__ import annotations

import sys


def main() -> None:
    """Loads the command line and runs it."""
    try:
        from trimtab.cli import main as loaded
    except KeyboardInterrupt:
        sys.exit(130)
    loaded.main()
