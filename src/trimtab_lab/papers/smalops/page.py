"""docs/papers/smalops.md: what was run, compared with the paper, the model and our bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trimtab_lab.papers.markdown import cells, conditions, rows_table, shown
from trimtab_lab.papers.paper_page import PaperPage
from trimtab_lab.papers.part import Part, Parts
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.smalops.deviations import DEVIATIONS
from trimtab_lab.papers.verdict import RowVerdict

INTRODUCTION = """\
# Bhattacharya & Wood (SMALOPS): balancing hot keys

*Load Balancing and Generalized Split State Reconciliation in Event Driven Systems.* Kafka sends \
all records of a key to one partition, chosen by a hash; a few hot keys can then overload some \
partitions. SMALOPS is a gateway that counts keys in windows of 10 s, routes only the hot ones by \
a table, and moves keys from partitions above the mean to partitions below it.
"""

WHERE = """\
## What was run, and how

| part of the paper | where it is |
|---|---|
| lossy counting, section II | `measure/lossy_counting.py`, `measure/counters.py` |
| two choices, rebalancing, eqs 1 to 4 | `plan/keys/smalops.py` |
| our planner | `plan/keys/trim.py` |
| generator, section III-A | `workload/key_streams.py` |
| queues, migrations and rivals | `simulate/keys/` |
| the paper's figures, the expected ones and our bars | `trimtab_lab/papers/published/smalops.py` |
| tables and figures | `steady_parts.py`, `shifting_parts.py` and `plots.py` in \
`trimtab_lab/papers/smalops/` |

`trimtab experiment smalops` runs everything on Spark, keeps the result of each run, and makes \
this page; `--what` selects a part. The paper gives neither the number of partitions nor the rate \
of its runs, so they are simulated: eight partitions, one FIFO server each with a constant \
service time, Poisson arrivals, keys by the paper's distribution as decimal text, hashed by \
Kafka's murmur2. A delay lasts from a record's arrival until its service begins. The records of a \
key that moves wait until the old partition has served what it held, and 1 ms more. The first \
window has no plan: it is warm-up, and left out. Means over seeds.

*Imbalance* is the load of the busiest partition divided by the mean, over all records, mean over \
the windows; *E_LB* the paper's balancing error (eq. 2), in records of hot keys. The paper's bound \
on the freshness of a message has no number: the tables show how many records wait at most 1 ms.

In the tables, *paper* is the figure that the paper states, *model* the result of another \
implementation of the same model, *bar* a limit that we set ourselves. Our figures are compared \
with the model's where there is one. "Below hash's" is a fraction of hash's figure: 0.73 is 73 % \
lower.
"""


def introduction(parts: Parts) -> str:
    """The results in a few sentences, then what was run."""
    told = [line for name, tell in _RESULTS.items() if name in parts for line in tell(parts[name])]
    listed = "\n".join(f"- {line}" for line in told)
    result = f"**Results**\n\n{listed}\n" if told else ""
    return "\n".join(filter(None, (INTRODUCTION, result, WHERE)))


# ---------------------------------------------------------------- results first


def _told_delays(part: Part) -> Iterable[str]:
    at_50, at_20 = (_row(part, f"p99 of smalops below hash's at {us} µs") for us in (50, 20))
    yield (
        f"At 50 µs a record SMALOPS lowers the 99th percentile of the delay by {at_50:.0%}; the "
        f"paper has {paper.P99_LOWER[50.0]:.0%}. At 20 µs and the same rate it is {at_20:.0%}, not "
        f"{paper.P99_LOWER[20.0]:.0%}: no partition is then more than 40 % busy."
    )


def _told_utilisation(part: Part) -> Iterable[str]:
    found = part.figures["below"]["smalops"]
    at = part.figures["utilisations"]
    crossed = _row(part, "utilisation at which p99 is 57 % below hash's")
    there = "" if crossed is None else f" The paper's 57 % occur at {crossed:.2f}."
    yield (
        f"The gain depends on how busy hash's busiest partition is: {found[0]:.0%} at "
        f"{at[0]:g}, {found[-1]:.0%} at {at[-1]:g}.{there}"
    )


def _told_thresholds(part: Part) -> Iterable[str]:
    found = part.figures
    worst = zip(found["coverages"], found["p99_us of the worst draw"], strict=True)
    low = [f"{coverage:.0%}" for coverage, p99 in worst if p99 > found["hash p99_us"]]
    worse = (
        f" With {_list(low)} it depends on the random choices, and can be worse than hash."
        if low
        else ""
    )
    yield f"It suffices to route the top keys that hold 20 to 30 % of the records.{worse}"


def _told_shifting(part: Part) -> Iterable[str]:
    for shift in part.figures["shifts"]:
        minutes, whole = (
            _row(part, f"shift {shift}: p99 of smalops by hash's, {span}")
            for span in ("worst minute", "whole run")
        )
        yield (
            f"When keys shift by {shift} every minute: 20 s after a shift its p99 is "
            f"{_times(minutes)} in the worst minute, over the whole run {_times(whole)}."
        )


def _told_ours(part: Part) -> Iterable[str]:
    missed = [row for row in part.rows if row.verdict is RowVerdict.OUTSIDE]
    judged = [row for row in part.rows if row.verdict is not RowVerdict.NOT_COMPARABLE]
    found = part.figures["steady"]["10"]
    trim, smalops = found["trim"], found["smalops"]
    yield (
        f"Our planner `trim` reaches the same p99 under steady load "
        f"({trim['p99_us']:.0f} µs, SMALOPS {smalops['p99_us']:.0f} µs, hash "
        f"{found['hash']['p99_us']:.0f} µs) with {shown(trim['migrations'])} migrations instead "
        f"of {shown(smalops['migrations'])} and {shown(trim['tracked'])} tracked keys instead of "
        f"{shown(smalops['tracked'])}. It meets {len(judged) - len(missed)} of {len(judged)} bars."
    )
    for window_s, shifts in part.figures["shifting"].items():
        for shift, policies in shifts.items():
            settings = {name: each for name, each in policies.items() if name.startswith("smalops")}
            best = min(each["p99_us"] for each in settings.values())
            first = [
                _row(
                    part,
                    f"shift {shift}, windows of {window_s} s: p99 of {name} by hash's, worst first",
                )
                for name in ("trim", "smalops")
            ]
            yield (
                f"Keys shifted by {shift}, windows of {window_s} s: over the whole run p99 is "
                f"{_time(policies['trim']['p99_us'])} with `trim`, {_time(best)} with the "
                f"best setting of SMALOPS, {_time(policies['hash']['p99_us'])} with hash. In "
                f"the first window after a shift `trim` is {_at_worst(first[0])}, SMALOPS "
                f"{_at_worst(first[1])}."
            )


def _told_rivals(part: Part) -> Iterable[str]:
    whole = part.figures["whole keys"]
    for load, policies in part.figures["loads"].items():
        best = {
            kept: min(
                (name for name in policies if whole[name] is kept),
                key=lambda name: policies[name]["p99_us"],
            )
            for kept in (True, False)
        }
        kept, split, trim = best[True], best[False], policies["trim"]
        compared = f" (trim {_time(trim['p99_us'])} with {shown(trim['migrations'])})"
        yield (
            f"Rivals, {load}: of the policies that keep keys whole {kept} has the lowest p99, "
            f"{_time(policies[kept]['p99_us'])} with {shown(policies[kept]['migrations'])} "
            f"migrations{'' if kept == 'trim' else compared}; splitting keys gives "
            f"{_time(policies[split]['p99_us'])} ({split}), without order and whole state."
        )


_RESULTS: Mapping[str, Callable[[Part], Iterable[str]]] = {
    "delays": _told_delays,
    "utilisation": _told_utilisation,
    "thresholds": _told_thresholds,
    "shifting": _told_shifting,
    "ours": _told_ours,
    "rivals": _told_rivals,
}


def _row(part: Part, start: str) -> Any:
    return next(row.ours for row in part.rows if row.what.startswith(start))


def _times(ratio: float) -> str:
    """A figure as a multiple of hash's."""
    if ratio <= 1:
        return f"{1 - ratio:.0%} below hash's"
    return f"{ratio - 1:.0%} above hash's" if ratio < 2 else f"{ratio:.0f} times hash's"


def _time(us: float) -> str:
    """A time in the unit that suits it."""
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= 10 * unit or (us >= unit and name == "s"):
            return f"{us / unit:.3g} {name}"
    return f"{us:.3g} µs"


def _at_worst(ratio: float) -> str:
    return "never above hash" if ratio <= 1 else f"at worst {_times(ratio)}"


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


# ---------------------------------------------------------------- sections

_DELAYS = {
    "p50_us": "p50 µs",
    "p90_us": "p90 µs",
    "p99_us": "p99 µs",
    "p999_us": "p99.9 µs",
    "sla_share": "within 1 ms",
    "imbalance": "imbalance",
    "e_lb": "E_LB",
    "migrations": "migrations",
    "tracked": "tracked keys",
}


def _table(policies: Mapping[str, Mapping[str, float]], first: str = "policy") -> list[str]:
    lines = [cells(first, *_DELAYS.values()), cells("---", *["---:"] * len(_DELAYS))]
    for name, found in policies.items():
        lines.append(cells(name, *(_cell(key, found[key]) for key in _DELAYS)))
    return lines


def _cell(key: str, value: float) -> str:
    if key == "sla_share":
        return f"{value:.2%}"
    return f"{value:.3f}" if key == "imbalance" else shown(value)


def _workload(part: Part) -> str:
    found = part.figures
    return "\n".join(
        [
            "## The workload (section II)\n",
            conditions(part),
            rows_table(part.rows),
            "",
            f"Hot keys have {found['hot_share']:.1%} of the records. The tracked keys are the "
            "routing table; the lossy counter behind it holds more: "
            f"{found['sketch_entries']:.0f} entries at the end of a window of 10 s, of which "
            f"{found['sketch_hot']:.0f} are hot.\n",
        ]
    )


def _delays(part: Part) -> str:
    lines = [
        "## Delays at 20 and 50 µs (figure 7)\n",
        conditions(part),
        rows_table(part.rows),
        "",
    ]
    for service_us, policies in part.figures["policies"].items():
        lines += [f"At {service_us} µs:\n", *_table(policies), ""]
    return "\n".join(lines)


def _service_times(part: Part) -> str:
    times = part.figures["service_times_us"]
    lines = [
        "## p99 against the service time (figure 8)\n",
        conditions(part),
        rows_table(part.rows),
        "",
        cells("p99 µs", *(f"{each:g} µs" for each in times)),
        cells("---", *["---:"] * len(times)),
    ]
    lines += [cells(name, *map(shown, row)) for name, row in part.figures["p99_us"].items()]
    return "\n".join(lines) + "\n"


def _thresholds(part: Part) -> str:
    found = part.figures
    lines = [
        "## What counts as hot (figure 9)\n",
        conditions(part),
        "A draw is a set of random choices; the figures are medians over the draws.\n",
        rows_table(part.rows),
        "",
        cells(
            "top keys with", "p99 µs", "best draw", "worst draw", "imbalance", "tracked", "moves"
        ),
        cells(*["---:"] * 7),
    ]
    columns = ("p99_us", "p99_us of the best draw", "p99_us of the worst draw")
    for at, coverage in enumerate(found["coverages"]):
        lines.append(
            cells(
                f"{coverage:.0%}",
                *(shown(found[name][at]) for name in columns),
                f"{found['imbalance'][at]:.3f}",
                shown(found["tracked"][at]),
                shown(found["migrations"][at]),
            )
        )
    lines.append(
        f"\nHash: p99 {shown(found['hash p99_us'])} µs. With a count of {paper.HOT_COUNT} per "
        f"window: {shown(found['count p99_us'])} µs and {shown(found['count tracked'])} keys.\n"
    )
    return "\n".join(lines)


def _utilisation(part: Part) -> str:
    found = part.figures
    lines = [
        "## The gain depends on the load\n",
        conditions(part),
        rows_table(part.rows),
        "",
        cells("utilisation", "records/s", "hash µs", "smalops µs", "trim µs", "smalops", "trim"),
        cells(*["---:"] * 7),
    ]
    for at, each in enumerate(found["utilisations"]):
        p99 = (shown(found["p99_us"][name][at]) for name in ("hash", "smalops", "trim"))
        falls = (f"−{found['below'][name][at]:.1%}" for name in ("smalops", "trim"))
        lines.append(cells(f"{each:g}", f"{found['rates_s'][at]:.0f}", *p99, *falls))
    return "\n".join(lines) + "\n"


def _shifting(part: Part) -> str:
    lines = ["## Keys that shift (figure 10)\n", conditions(part), rows_table(part.rows), ""]
    for shift, policies in part.figures["shifts"].items():
        minutes = len(next(iter(policies.values()))["minutes_p99_us"])
        lines += [
            f"p99 in µs, keys shifted by {shift}, without 20 s after each shift:\n",
            cells("policy", *(f"minute {n}" for n in range(1, minutes + 1)), "whole run"),
            cells("---", *["---:"] * (minutes + 1)),
        ]
        for name, found in policies.items():
            lines.append(cells(name, *map(shown, (*found["minutes_p99_us"], found["p99_us"]))))
        lines.append("")
        lines += _why_overloaded(policies)
    return "\n".join(lines)


def _why_overloaded(policies: Mapping[str, Any]) -> list[str]:
    """Explains with the run's figures why minutes of SMALOPS are worse than hash's, if some are."""
    ours, theirs = (policies[name]["minutes_p99_us"] for name in ("smalops", "hash"))
    if all(mine < known for mine, known in zip(ours, theirs, strict=True)):
        return []
    most, usual = (max(policies[name]["windows"]["imbalance"]) for name in ("smalops", "hash"))
    return [
        "**Why these minutes are worse than hash.** Keys of about the same size become hot "
        "together and are placed one after another, and two choices send most of them to the "
        "partitions that have the least load at that moment. A later shift makes just these keys "
        f"the largest: until the next plan one partition gets up to {most:.2f} times the mean "
        f"load in the run that is drawn (hash at most {usual:.2f}). That is above what it can "
        "serve, and the queue is not gone 20 s later. Whether it happens depends on the random "
        "choices. `trim` routes so few keys that it does not meet this case here.\n"
    ]


def _rivals(part: Part) -> str:
    found = part.figures
    lines = ["## Rivals on the same arrivals\n", conditions(part), rows_table(part.rows), ""]
    for load, policies in found["loads"].items():
        lines += [f"### {load.capitalize()}\n", *_table(policies)]
        lines.append(
            f"\nLeast imbalance of any policy that keeps keys whole: "
            f"{found['least imbalance'][load]:.3f}.\n"
        )
    lines += [
        "### What each gives up, and what was chosen\n",
        "A policy that splits a key needs another step that joins its state, and its records are "
        "processed out of order.\n",
        cells("policy", "gives up", "chosen where its source leaves it open"),
        cells("---", "---", "---"),
    ]
    lines += [
        cells(name, text, found["chosen"][name] or "–") for name, text in found["gives up"].items()
    ]
    return "\n".join(lines) + "\n"


def _ours(part: Part) -> str:
    lines = ["## Ours: `trim`\n", conditions(part), rows_table(part.rows), ""]
    lines += _why_worse(part)
    for window_s, policies in part.figures["steady"].items():
        lines += [f"Steady, windows of {window_s} s:\n", *_table(policies), ""]
    for window_s, shifts in part.figures["shifting"].items():
        for shift, policies in shifts.items():
            lines += [f"Keys shifted by {shift}, windows of {window_s} s:\n", *_table(policies), ""]
    return "\n".join(lines)


def _why_worse(part: Part) -> list[str]:
    """Names the windows in which `trim` is worse than hash, if there are any."""
    lines = []
    for window_s, shifts in part.figures["worse windows"].items():
        for shift, starts in shifts.items():
            second = [s for s in starts if s % paper.SHIFT_EVERY_S < 2 * float(window_s) - 1e-9]
            if starts:
                lines.append(
                    f"- Keys shifted by {shift}, windows of {window_s} s: "
                    f"{len(starts)} of the windows that are judged, {len(second)} of them the "
                    "second after a shift.\n"
                )
    if not lines:
        return []
    limit = 1 / paper.SHIFTING_UTILISATION
    return [
        "**Where `trim` is worse than hash.** Until the first plan after a shift its routes belong "
        "to the keys' old rates. Two keys that have grown may then be on one partition, and above "
        f"{limit:.2f} times the mean load a partition is overloaded; what has queued is served "
        "in the next window. SMALOPS has the same weakness; which shifts hit which planner is "
        "chance. The last rows show what a shorter window is worth.\n",
        *lines,
    ]


SECTIONS: Mapping[str, tuple[str, Callable[[Part], str]]] = {
    "workload": ("The workload (section II)", _workload),
    "delays": ("Delays at 20 and 50 µs (figure 7)", _delays),
    "service-times": ("p99 against the service time (figure 8)", _service_times),
    "thresholds": ("What counts as hot (figure 9)", _thresholds),
    "utilisation": ("The gain depends on the load", _utilisation),
    "shifting": ("Keys that shift (figure 10)", _shifting),
    "rivals": ("Rivals on the same arrivals", _rivals),
    "ours": ("Ours: `trim`", _ours),
}

PAGE = PaperPage(introduction=introduction, sections=SECTIONS, deviations=DEVIATIONS)
