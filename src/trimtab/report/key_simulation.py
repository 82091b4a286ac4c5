"""The keys simulation as tables: delays of each policy, and what it costs."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.text import Text

from trimtab.report.columns import new_table
from trimtab.report.tables import duration
from trimtab.simulate.keys.registry import key_policies
from trimtab.simulate.keys.result import QUANTILES, KeySimulation, PolicyRun

_LOOK: dict[str, Any] = {
    "left": 1,
    "box": box.SIMPLE_HEAD,
    "pad_edge": False,
    "collapse_padding": True,
}
REFERENCE = "hash"
"""The policy with which the others are compared."""


def key_simulation_view(
    found: KeySimulation, *, sla_s: float, utilisation: float
) -> RenderableType:
    """A table of delays, one of costs, and notes."""
    delays = new_table(
        *("policy", *QUANTILES, "p99 to hash", "within SLA", "imbalance", "highest"),
        title=f"Queueing delay, SLA {duration(sla_s)}",
        **_LOOK,
    )
    costs = new_table(
        *("policy", "moves", "a window", "tracked", "E_LB", "split keys", "gives up"),
        title="Cost",
        **_LOOK,
    )
    for run in found.runs:
        measured = run.measured
        delays.add_row(
            run.name,
            *(waited(s) for s in measured.quantiles_s(list(QUANTILES.values()))),
            change_to_hash(found, run),
            "–" if not measured.records else f"{measured.within_share:.2%}",
            f"{run.mean_imbalance:.3f}",
            f"{run.max_imbalance:.3f}",
        )
        costs.add_row(
            run.name,
            f"{run.moved:,}",
            moves_in_words(run),
            f"{run.tracked:,}",
            f"{run.mean_e_lb:,.0f}",
            f"{run.split_keys:,.0f}",
            gives_up(run.name),
        )
    return Group(delays, Text(), costs, Text(), Text("\n".join(_notes(found, utilisation)), "dim"))


def _notes(found: KeySimulation, utilisation: float) -> list[str]:
    measured = found.arrivals[1:] or found.arrivals
    count = max(1, len(measured))
    hot = sum(window.hot_keys for window in measured) / count
    share = sum(w.hot_records for w in measured) / max(1, sum(w.records for w in measured))
    entries = [w.sketch_entries for w in measured if w.sketch_entries is not None]
    shards = [w.shard_imbalance for w in measured if w.shard_imbalance is not None]
    warm_up = found.runs[0].warm_up.quantile_s(0.99) if found.runs else math.nan
    return [
        f"{found.records:,} records in {len(found.arrivals)} windows of "
        f"{duration(found.window_s)}; partitions are {utilisation:.1%} busy in the mean.",
        f"The first window is warm-up (p99 of {found.runs[0].name} there: {waited(warm_up)})."
        if found.runs
        else "No policy was asked for.",
        f"Hot keys in a window: {hot:,.0f}, with {share:.1%} of the records.",
        f"No policy that keeps keys whole and cold keys at home has an imbalance below "
        f"{found.bound:.3f}.",
        *([f"A lossy counter needs {sum(entries) / count:,.0f} entries."] if entries else []),
        *([f"Imbalance between gateway shards: {sum(shards) / count:.3f}."] if shards else []),
        "Moves are migrations of keys; tracked are the most entries of the routing table.",
        "Delays last until processing begins, and are exact to 0.03 %.",
    ]


def waited(seconds: float) -> str:
    """A delay; a dash if there were no records."""
    return "–" if math.isnan(seconds) else duration(seconds)


def change_to_hash(found: KeySimulation, run: PolicyRun) -> str:
    """The change of the p99 delay against that of hash, if that was simulated too."""
    others = [one for one in found.runs if one.name == REFERENCE]
    if not others or run.name == REFERENCE:
        return "–"
    usual, own = (one.measured.quantile_s(0.99) for one in (others[0], run))
    return f"{own / usual - 1:+.0%}" if usual and not math.isnan(own) else "–"


def moves_in_words(run: PolicyRun) -> str:
    """Migrations per decision, by reason."""
    decisions = max(1, len(run.windows) - 1)
    means = {reason: n / decisions for reason, n in run.moves.items()}
    shown = [f"{why} {n:,.0f}" if n >= 100 else f"{why} {n:.3g}" for why, n in means.items()]
    return ", ".join(shown) or "–"


def gives_up(name: str) -> str:
    """What a policy gives up; nothing if it is not in the registry."""
    kind = key_policies().get(name)
    return "–" if kind is None or kind.whole_state else kind.gives_up
