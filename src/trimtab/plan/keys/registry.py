"""The planners of the keys layer by name."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.plan.keys.planner import KeyPlanner
from trimtab.plan.keys.smalops import SMALOPS
from trimtab.plan.keys.trim import TRIM

KEY_PLANNERS: Mapping[str, KeyPlanner] = {planner.name: planner for planner in (SMALOPS, TRIM)}
