"""Results of live runs, a file each, so that an experiment goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.model.codec import dumps
from trimtab.model.files import write_atomically


def kept(folder: Path, key: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures kept under a key; None where there are none, or of other settings."""
    try:
        found = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        same = found["settings"] == json.loads(dumps(dict(settings)))
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None
    return dict(found["figures"]) if same else None


def keep(
    folder: Path, key: str, settings: Mapping[str, Any], figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Keeps figures, and returns them as they will be read again."""
    whole = {"settings": dict(settings), "figures": dict(figures)}
    text = dumps(whole)
    write_atomically(folder / f"{key}.json", text + "\n")
    return dict(json.loads(text)["figures"])
