"""docs/papers/*-live.md: what was run on real brokers, compared with the papers' figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trimtab_lab.papers.live.plan import (
    BYTES_CLIMB_S,
    BYTES_HOLD_S,
    BYTES_QUIET_S,
    BYTES_STEP_S,
    BYTES_WINDOW_S,
    CAPACITY_BYTES_S,
    LATE_AT_MOST,
    SERVICE_BYTES_S,
    SIZE_MEANS,
    LiveWorkload,
    Strategy,
)
from trimtab_lab.papers.markdown import cells, conditions, rows_table, shown
from trimtab_lab.papers.paper_page import PaperPage
from trimtab_lab.papers.part import Part
from trimtab_lab.papers.published import landau as landau_paper

_LIVE = """\
Everything here is real: brokers, consumers as processes with a fixed service time of 10 ms per \
record, records sent open loop with a linger of 50 ms. Spark measures the rates, the controller \
of `trimtab run` decides every second, and Spark evaluates the result from the consumers' \
receipts. Replica-minutes count processes, from their start to their end. A moved partition is \
*blocked* from the last record of its old consumer to the first record of its new one, not \
counting time without records to read; the *hand-over* lasts from `stop` to `started`. The first \
run of a series follows a short warm-up whose results are discarded, because brokers are slow \
after their start. The sender has a higher priority than everything else on the machine, if the \
system allows it. In the tables, *paper* is the figure that the paper states, *model* the result \
of a model of its system, *bar* a limit that we set ourselves.

| strategy | scaling by | partitions assigned by |
|---|---|---|
"""
_STRATEGIES: Mapping[Strategy, str] = {
    Strategy.OURS: (
        "our planner: arrival rates, and backlogs read within half the SLA | our controller, "
        "moving single partitions"
    ),
    Strategy.LL_FFD: "Ezzeddine's planner | our controller, likewise",
    Strategy.LL_FFD_GROUP: (
        "Ezzeddine's planner | the group's leader, which asks the controller (section 3.3)"
    ),
    Strategy.MWF: "Landau's planner, by rate only | our controller, likewise",
    Strategy.STICKY: "the number of replicas that trim had at the same time | Kafka's assignor",
    Strategy.KEDA: (
        "KEDA's rule: one per 10 records of lag, every 15 s, down after 5 min | Kafka's assignor"
    ),
    Strategy.FIXED: "none: always one consumer per partition | Kafka's assignor",
}


def _introduction(*workloads: LiveWorkload) -> str:
    known = {s for workload in workloads for s in workload.strategies}
    return _LIVE + "\n".join(f"| {s} | {_STRATEGIES[s]} |" for s in Strategy if s in known) + "\n"


EZZEDDINE = f"""\
# Ezzeddine et al., live: workload 1 on real brokers

{_introduction(LiveWorkload.EZZEDDINE_1)}
`trimtab experiment ezzeddine-live` runs everything, keeps the result of each run, and makes this \
page.
"""

LANDAU = f"""\
# Landau et al., live: peak rates, response times, and random walks on real brokers

{_introduction(LiveWorkload.LANDAU_5)}
`trimtab experiment landau-live` runs everything, keeps the result of each run, and makes this \
page; `--what` selects a part.

**Walks in bytes/s** (`bytes-5`, `bytes-25`) are the paper's own case: records differ in size, \
from half to 3/2 of a mean that is {", ".join(map(str, SIZE_MEANS[:-1]))} or {SIZE_MEANS[-1]} \
bytes by partition, and a consumer handles C̄ = {SERVICE_BYTES_S:,.0f} bytes/s, whatever the number \
of records. `trim` and `mwf` pack measured bytes/s into C = 5/6 C̄ = {CAPACITY_BYTES_S:,.0f} \
(section VI-C); `ll-ffd` counts records and only knows the mean record size. Rates change every \
{BYTES_STEP_S:g} s and are measured over {BYTES_WINDOW_S:g} s, and the controller tries to use \
fewer consumers after {BYTES_QUIET_S:g} s, as in the paper. The first rates are reached in \
{BYTES_CLIMB_S:g} s and held for {BYTES_HOLD_S:g} s; this start is not evaluated, as the paper's \
model has none. Measured bytes are bytes on disk: because of headers and batches they are slightly \
more than a consumer handles.
"""

_DEVIATIONS = """\
## What differs from the paper, and why

- **One machine instead of a cloud.** Brokers, Spark, controller, load and consumers share its \
cores: a new consumer starts within seconds instead of tens of seconds, but all processes slow \
each other down. The paper's figures are for information; only our bars are checked.
- **A short cycle.** Consumers check for commands every 0.2 s and use batches of about 30 records, \
where Landau's use 1 s and 5 MB, so that a move does not block a partition for seconds.
- **Shortened runs** (`--stretch` other than 1) are not compared with the bars: ramps are steeper \
and the start has more weight. Order of records, and trim compared with cooperative-sticky, are \
always checked.
- **Time to measure** is part of the delays: if Spark publishes rates late on a busy machine, \
decisions are late as well.
"""

EZZEDDINE_DEVIATIONS = (
    _DEVIATIONS
    + """\
- **Blocked partitions in group mode.** A Python assignor uses the eager protocol: every rebalance \
stops the whole group, not only moved partitions. *Blocked* counts moved partitions, from their \
receipts, as for the other strategies; *rebalance* is how long each member had no partitions, from \
its own log. The paper's "less than 1 second" is the duration of the reassignment, which is closer \
to the latter; both are compared with it.
"""
)

LANDAU_DEVIATIONS = (
    _DEVIATIONS
    + """\
- **Windows.** The walks in bytes/s use the paper's window of 30 s. The others use 5 s: their \
rates change every 15 s, and a window of 30 s would never show one of them alone.
"""
)


# ---------------------------------------------------------------- sections


def _live(title: str, workload: LiveWorkload) -> tuple[str, Callable[[Part], str]]:
    def section(part: Part) -> str:
        lines = [
            f"## {title}\n",
            conditions(part),
            rows_table(part.rows),
            "",
            cells(
                *("strategy", "in time", "p50 s", "p90 s", "p99 s", "replica-minutes", "moves"),
                *("blocked p90 s", "hand-over p90 s", "rebalance p90 s", "max lag", "decisions"),
                "order findings",
            ),
            cells("---", *["---:"] * 12),
        ]
        strategies = part.figures["strategies"]
        for name, f in strategies.items():
            lines.append(
                cells(
                    name,
                    f"{f['sla_share']:.2%}",
                    *(shown(f[key]) for key in ("p50_s", "p90_s", "p99_s")),
                    f"{f['replica_minutes']:.1f}",
                    *(shown(f[key]) for key in ("moves", "blocked_p90_s", "handover_p90_s")),
                    shown(f.get("rebalance_p90_s")),
                    *(shown(f[key]) for key in ("max_lag", "decisions", "order_findings")),
                )
            )
        if missing := [s for s in workload.strategies if s not in strategies]:
            lines.append(f"\nNot run yet: {', '.join(missing)}.")
        return "\n".join([*lines, *_notes(part, strategies)]) + "\n"

    return title, section


def _notes(part: Part, strategies: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Notes on problems during the runs: late rates, late records, repeated runs."""
    ages = [f.get("rates_after_p50_s") for f in strategies.values()]
    slowest = max((age for age in ages if age is not None), default=0.0)
    if slowest > part.settings["decisions every s"]:
        yield (
            f"\nRates were published {slowest:.1f} s after their sample, at the median: "
            "the decisions made every second used older figures."
        )
    late = sum(f["late"] for f in strategies.values())
    if late:
        yield f"\n{late:.0f} records were sent more than 0.1 s late: the machine was busy."
    again = {s: f["tries"] for s, f in strategies.items() if f["tries"] > 1}
    if again:
        listed = ", ".join(f"{s} {tries:g} times" for s, tries in again.items())
        yield (
            f"\nRun more than once, because more than {100 * LATE_AT_MOST:g} % "
            f"of the load had been late: {listed}."
        )


def _peaks(part: Part) -> str:
    found = part.figures["conditions"]
    lines = [
        "## The consumer's peak rate (Table VI, figure 13)\n",
        conditions(part),
        rows_table(part.rows),
        "",
        cells("condition", "MB", "partitions", "tables", "mode MB/s", "median MB/s", "cycles"),
        cells("---", *["---:"] * 6),
    ]
    for name, f in found.items():
        numbers = (shown(f[key]) for key in ("mode_mb_s", "median_mb_s"))
        size = (shown(f["megabytes"]), str(f["partitions"]), str(f["tables"]))
        lines.append(cells(name, *size, *numbers, str(len(f["rates_mb_s"]))))
    modes, medians = ([f[key] for f in found.values()] for key in ("mode_mb_s", "median_mb_s"))
    lines.append(
        "\n**Where our results contradict the paper.** Figure 13 shows one common mode of about "
        f"{landau_paper.PEAK_MB_S:g} MB/s, from which the paper concludes that a consumer has a "
        "constant capacity. Here the modes of the same three conditions are "
        f"{' / '.join(f'{mode:.1f}' for mode in modes)} MB/s, the largest "
        f"{max(modes) / min(modes):.1f} times the smallest, and the medians "
        f"{' / '.join(f'{middle:.1f}' for middle in medians)}: cycles also differ widely within "
        "one condition. On this machine the capacity is not a single number."
    )
    return "\n".join(lines) + "\n"


def _responses(title: str) -> tuple[str, Callable[[Part], str]]:
    return title, lambda part: f"## {title}\n\n{_spans(part)}"


def _spans(part: Part) -> str:
    lines = [
        conditions(part),
        "measure: from a sample to its published rates. decide: making the plan, comparing it with "
        "the assignment, requesting new consumers. create: until the last new consumer has "
        "announced itself. hand over: from then, or from the first command, to the last "
        "acknowledgement. The paper's figures were measured in a cloud: the window of 30 s, at "
        "most 1 s, 10 to 50 s in 88 % of cases, about 5 s.\n",
        cells("walk", "span", "observations", "p50 s", "p90 s", "p99 s", "max s", "paper s"),
        cells("---", "---", *["---:"] * 6),
    ]
    for workload, spans in part.figures["responses"].items():
        for name, f in spans.items():
            each = (shown(f["levels"].get(key)) for key in ("p50", "p90", "p99", "max"))
            known = shown(landau_paper.RESPONSES_S.get(name))
            lines.append(cells(workload, name, str(f["observations"]), *each, known))
    return "\n".join(lines) + "\n"


EZZEDDINE_SECTIONS: Mapping[str, tuple[str, Callable[[Part], str]]] = {
    "live-workload-1": _live("Workload 1", LiveWorkload.EZZEDDINE_1),
}
LANDAU_SECTIONS: Mapping[str, tuple[str, Callable[[Part], str]]] = {
    "peak": ("The consumer's peak rate (Table VI, figure 13)", _peaks),
    "responses": _responses("Response times (figures 14 to 17)"),
    "live-delta-5": _live("A random walk with delta 5", LiveWorkload.LANDAU_5),
    "live-delta-25": _live("A random walk with delta 25", LiveWorkload.LANDAU_25),
    "live-bytes-5": _live("A random walk in bytes/s with delta 5", LiveWorkload.BYTES_5),
    "live-bytes-25": _live("A random walk in bytes/s with delta 25", LiveWorkload.BYTES_25),
    "responses-bytes": _responses("Response times of the walks in bytes/s"),
}

EZZEDDINE_PAGE = PaperPage(
    introduction=lambda _: EZZEDDINE, sections=EZZEDDINE_SECTIONS, deviations=EZZEDDINE_DEVIATIONS
)

LANDAU_PAGE = PaperPage(
    introduction=lambda _: LANDAU, sections=LANDAU_SECTIONS, deviations=LANDAU_DEVIATIONS
)
