"""Bhattacharya & Wood (SMALOPS): the parts of the experiment by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trimtab_lab.papers.part import Part, Runner
from trimtab_lab.papers.smalops.design import SmalopsDesign
from trimtab_lab.papers.smalops.shifting_parts import ours, rivals, shifting
from trimtab_lab.papers.smalops.steady_parts import (
    delays,
    service_times,
    thresholds,
    utilisation,
    workload,
)

PARTS: Mapping[str, Callable[[SmalopsDesign, Runner], Part]] = {
    "workload": workload,
    "delays": delays,
    "service-times": service_times,
    "thresholds": thresholds,
    "utilisation": utilisation,
    "shifting": shifting,
    "rivals": rivals,
    "ours": ours,
}
