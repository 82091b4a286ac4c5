"""Makes docs/benchmarks.md: one row per benchmark, including those where we lose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import BadFile
from trimtab_lab.benchmarks import plots
from trimtab_lab.benchmarks.benchmark import Benchmark, BenchUnit, Result
from trimtab_lab.benchmarks.registry import BENCHMARKS
from trimtab_lab.papers.landau.page import beyond
from trimtab_lab.papers.part import Part, read_parts
from trimtab_lab.papers.results import results_file

PAPERS = Path("docs/papers")
RESULTS = Path("benchmarks/results")
PLOTS = Path("benchmarks/plots")
PAGE = Path("docs/benchmarks.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A plot of how a time grows with size, for all results of one unit."""

    unit: BenchUnit
    picture: str
    title: str
    over: str
    scale: tuple[float, str]


CURVES = (
    Curves(
        unit=BenchUnit.MICROS_ROW,
        picture="growth.svg",
        title="Time per row as rows grow",
        over="rows",
        scale=(1e6, " M"),
    ),
    Curves(
        unit=BenchUnit.MICROS_PARTITION,
        picture="partition-growth.svg",
        title="Time per partition as partitions grow",
        over="partitions",
        scale=(1e3, " k"),
    ),
    Curves(
        unit=BenchUnit.NANOS_N_LOG_N,
        picture="plan-growth.svg",
        title="Time of a plan over n log n as partitions or keys grow",
        over="partitions or keys",
        scale=(1e3, " k"),
    ),
)

_INTRO = """\
<!-- Made by `make bench` from benchmarks/results; changes here are lost. -->

# Benchmarks

`make bench` runs all benchmarks and writes this page; `trimtab bench NAME` runs one, and \
`trimtab bench --list` lists them. Each benchmark compares ours with a rival: direct library calls \
or a simple implementation. Both run in one process on the same seeded data: one warm-up each, \
then alternately; the figures are medians. **Ratio** is above 1 when ours is better, whatever the \
unit. **Bar** is the ratio that we want to reach. Seconds and rates depend on the machine \
described below; compare ratios.
"""

_QUALITY_AGAIN = """\
The plots are on [the paper's page](papers/landau.md). To repeat it: \
`trimtab experiment landau --what beyond`.
"""


def kept_results(root: Path) -> tuple[Result, ...]:
    """The results saved in a project folder, in the order of the registry."""
    found = []
    for name in BENCHMARKS:
        path = root / RESULTS / f"{name}.json"
        if path.exists():
            try:
                found.append(Result(**json.loads(path.read_text(encoding="utf-8"))))
            except (TypeError, ValueError) as error:
                raise BadFile(
                    f"{path}: not a valid benchmark result: {error}",
                    hint=f"Delete it, or run: trimtab bench {name} --keep",
                ) from error
    return tuple(found)


def kept_quality(root: Path) -> Part | None:
    """The saved comparison of `trim` with all other planners; None if it was not run."""
    return read_parts(results_file(root / PAPERS, "landau")).get("beyond")


def files(results: Sequence[Result], quality: Part | None = None) -> dict[Path, str]:
    """The page and its plots, by their path in the project folder."""
    made = {PAGE: page(results, quality)}
    if results:
        bars = {name: b.bar for name, b in BENCHMARKS.items()}
        made[PLOTS / "ratios.svg"] = plots.ratios(results, bars)
    for curves in CURVES:
        if grown := _grown(results, curves.unit):
            made[PLOTS / curves.picture] = plots.growth(
                grown, over=curves.over, unit=curves.unit, scale=curves.scale
            )
    return made


def page(results: Sequence[Result], quality: Part | None = None) -> str:
    """The text of docs/benchmarks.md."""
    parts = [
        _INTRO,
        _row("benchmark", "what", "rival", "ours", "rival's", "ratio", "bar", "verdict"),
        _row("---", "---", "---", "---:", "---:", "---:", "---:", "---"),
        *(_result_row(result, BENCHMARKS[result.name]) for result in results),
        "",
    ]
    if results:
        parts.append("![Ratios and bars](../benchmarks/plots/ratios.svg)\n")
    parts += [
        f"![{curves.title}](../benchmarks/plots/{curves.picture})\n"
        for curves in CURVES
        if _grown(results, curves.unit)
    ]
    if missed := [r for r in results if not met(r)]:
        parts.append("## Why bars are missed\n")
        parts += [f"- `{r.name}`: {why_missed(r)}" for r in missed]
        parts.append("")
    if quality is not None:
        parts += [beyond(quality, papers="papers/"), _QUALITY_AGAIN]
    parts.append("## Settings\n")
    for result in results:
        parts.append(f"- `{result.name}`: {_settings(result.settings)}")
    parts += ["", "## Machine\n"]
    for machine, names in _machines(results).items():
        rows = "" if len(names) == len(results) else f" ({', '.join(names)})"
        parts.append(f"- {machine}{rows}")
    return "\n".join(parts).rstrip() + "\n"


def met(result: Result) -> bool:
    """Whether a result reaches its bar."""
    return result.ratio >= BENCHMARKS[result.name].bar


def why_missed(result: Result) -> str:
    """The reason to print when a bar is missed."""
    return BENCHMARKS[result.name].when_missed or "The reason is not known yet."


def figure(value: float, unit: str) -> str:
    """A figure with its unit, short enough for a table.

    >>> figure(1_935_000.0, "rows/s"), figure(0.3461, "s"), figure(181.2, "MB")
    ('1.94 M rows/s', '0.346 s', '181 MB')
    """
    if value >= 1e6:
        return f"{value / 1e6:.3g} M {unit}"
    if value >= 1e4:
        return f"{value / 1e3:.3g} k {unit}"
    return f"{value:.3g} {unit}"


def _grown(results: Sequence[Result], unit: BenchUnit) -> list[Result]:
    return [r for r in results if "curve" in r.settings and r.unit == unit]


def _result_row(result: Result, benchmark: Benchmark) -> str:
    return _row(
        f"`{result.name}`",
        benchmark.what,
        benchmark.rival,
        figure(result.ours, result.unit),
        figure(result.rival, result.unit),
        f"{result.ratio:.2f}",
        f"{benchmark.bar:g}",
        "meets" if met(result) else "**misses**",
    )


def _settings(settings: Mapping[str, Any]) -> str:
    listed = {k: v for k, v in settings.items() if k != "machine"}
    return ", ".join(f"{name} {_value(value)}" for name, value in listed.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + "; ".join(f"{k}: {_value(v)}" for k, v in value.items()) + ")"
    if isinstance(value, list):
        return " · ".join(_value(v) for v in value)
    if isinstance(value, float | int) and value >= 1e4:
        return figure(value, "").strip()
    return str(value)


def _machines(results: Sequence[Result]) -> dict[str, list[str]]:
    machines: dict[str, list[str]] = {}
    for result in results:
        machines.setdefault(str(result.settings["machine"]), []).append(result.name)
    return machines


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
