"""Writes plans, loads, counts and snapshots as the files that `read_plan` and others read."""

from __future__ import annotations

from pathlib import Path

from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.codec import Json, counts_to, dumps, loads_to, measurement_to, snapshot_to
from trimtab.model.files import write_atomically
from trimtab.model.key_counts import KeyCounts
from trimtab.model.load import Loads, Measurement
from trimtab.model.plan import AnyPlan
from trimtab.model.plan_codec import plan_to


def write_plan(plan: AnyPlan, path: str | Path) -> None:
    """Writes a plan file atomically, as `trimtab plan -o` does."""
    _write(plan_to(plan), path)


def write_loads(loads: Loads | Measurement, path: str | Path) -> None:
    """Writes a loads file or a measurement atomically."""
    _write(loads_to(loads) if isinstance(loads, Loads) else measurement_to(loads), path)


def write_counts(counts: KeyCounts, path: str | Path) -> None:
    """Writes a counts file atomically."""
    _write(counts_to(counts), path)


def write_snapshot(snapshot: ClusterSnapshot, path: str | Path) -> None:
    """Writes a snapshot file atomically."""
    _write(snapshot_to(snapshot), path)


def _write(value: Json, path: str | Path) -> None:
    write_atomically(Path(path), dumps(value, indent=2) + "\n")
