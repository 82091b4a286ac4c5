"""Keeps Spark's Python workers quick between the tasks of a streaming query."""

from __future__ import annotations

import sys
from zipimport import zipimporter


def forget_zip_importers() -> None:
    """Call it at the end of a task that runs several times a second.

    At the start of every task Spark calls `importlib.invalidate_caches()`, and each importer of a
    zip file then reads the whole directory of its file again: PySpark itself is such a file, and
    this takes some 50 ms. Without their importers there is nothing to read; the next import of a
    module that is not loaded yet makes them anew.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
