"""Kept results of live runs, one file each, so that an interrupted experiment can continue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.model.codec import dumps
from trimtab.model.files import write_atomically


def kept(folder: Path, key: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures kept under a key; None if there are none, or their settings differ."""
    try:
        found = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        same = found["settings"] == json.loads(dumps(dict(settings)))
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None
    return dict(found["figures"]) if same else None


def keep(
    folder: Path, key: str, settings: Mapping[str, Any], figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Saves figures, and returns them as `kept` will read them."""
    whole = {"settings": dict(settings), "figures": dict(figures)}
    text = dumps(whole)
    write_atomically(folder / f"{key}.json", text + "\n")
    return dict(json.loads(text)["figures"])
