"""Between tasks a worker has no importers of zip files, and still imports from them."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from trimtab.spark.workers import forget_zip_importers


def test_modules_of_a_zip_can_be_imported_after_its_importer_was_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shipped.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("shipped_first.py", "value = 1")
        archive.writestr("shipped_second.py", "value = 2")
    monkeypatch.syspath_prepend(str(path))
    assert importlib.import_module("shipped_first").value == 1
    assert isinstance(sys.path_importer_cache[str(path)], zipimporter)

    forget_zip_importers()

    assert not any(isinstance(f, zipimporter) for f in sys.path_importer_cache.values())
    importlib.invalidate_caches()
    assert importlib.import_module("shipped_second").value == 2
