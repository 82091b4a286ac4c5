"""The planners and parameters of the comparison by Landau et al."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from trimtab.evaluate.rscore import TWELVE
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import FirstBin
from trimtab.plan.consumers.planner import PackingPlanner
from trimtab.plan.registry import planner_of
from trimtab_lab.papers.grid import code_version
from trimtab_lab.papers.landau import packing_runs as runs
from trimtab_lab.papers.published import landau as paper
from trimtab_lab.papers.verdict import VerdictRow, at_most, for_information, near

UNIFORM = "uniform"
STARTS = (UNIFORM, "0", "0.5", "1")
RIVALS = ("kafka-range", "kafka-round-robin", "kafka-sticky")
SLACKS = (0.03,)
CELLS_PER_TASK = 6
"""A cell takes about half a second, a task about 0.15 s more; cells of trim take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A planner with its options; one with a fixed group size gets as many members as `bfd`."""

    name: str
    planner: str
    slack: float = 0.0
    nf_first_bin: FirstBin = FirstBin.ZERO

    @classmethod
    def of(cls, planner: str) -> Contestant:
        """Returns the planner with the options of the published comparison."""
        return cls(name=planner, planner=planner)

    @property
    def code(self) -> str:
        """The version of all code that its figures depend on."""
        planner = planner_of(Layer.CONSUMERS, self.planner)
        counted = [planner_of(Layer.CONSUMERS, "bfd")] if "members" in planner.uses else []
        return code_version([runs.__name__, *map(_module_of, (planner, *counted))])


def _module_of(planner: PackingPlanner) -> str:
    rule = planner.rule
    return str((rule.func if isinstance(rule, partial) else rule).__module__)


STICKY_NFD = Contestant(name="nfd sticky", planner="nfd", nf_first_bin=FirstBin.STICKY)
TRIM = Contestant.of("trim")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandauDesign:
    """The parameters of the experiment; the defaults are those of the published comparison."""

    seeds: int = 3
    iterations: int = 500
    partitions: int = 200
    deltas: tuple[int, ...] = paper.DELTAS
    starts: tuple[str, ...] = STARTS
    planners: tuple[str, ...] = TWELVE
    slacks: tuple[float, ...] = SLACKS
    streams: int = 10  # for the latencies
    reference: tuple[str, ...] = TWELVE

    @property
    def moving(self) -> tuple[int, ...]:
        """The deltas at which loads change."""
        return tuple(delta for delta in self.deltas if delta > 0)

    @property
    def comparable(self) -> bool:
        """Whether the published figures are for these parameters; seeds only add precision."""
        return (self.partitions, self.iterations) == (200, 500)

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters by name."""
        return {
            "seeds": self.seeds,
            "iterations": self.iterations,
            "partitions": self.partitions,
            "capacity": runs.CAPACITY,
            "deltas": list(self.deltas),
        }

    def near(
        self, what: str, known: float, ours: float | None, tolerance: float | None
    ) -> VerdictRow:
        """Compares a figure with the paper's; without verdict if the parameters differ."""
        if ours is None or tolerance is None or not self.comparable:
            return for_information(what, ours, paper=known)
        return near(what, ours, paper=known, tolerance=tolerance)

    def none(self, what: str, broken: int) -> VerdictRow:
        """How often a property shown in the paper does not hold; verdict as in `near`."""
        return at_most(what, 0, broken) if self.comparable else for_information(what, broken, bar=0)
