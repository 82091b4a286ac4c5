"""How two sides are timed and compared."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from trimtab.errors import ConfigError
from trimtab_lab.benchmarks import registry
from trimtab_lab.benchmarks.benchmark import Benchmark, BenchUnit, Sides, alternating, compared
from trimtab_lab.benchmarks.registry import BENCHMARKS, benchmark


def _benchmark(unit: BenchUnit) -> Benchmark:
    return Benchmark(
        name="b",
        what="",
        rival="",
        bar=1.0,
        unit=unit,
        rows=1,
        run=lambda *_: Sides(ours=(1.0,), rival=(1.0,)),
    )


def test_the_sides_take_turns_after_one_warm_up_each() -> None:
    order: list[str] = []

    alternating(lambda: order.append("ours"), lambda: order.append("rival"), runs=3)

    assert order == ["ours", "rival", "ours", "rival", "rival", "ours", "ours", "rival"]


def test_each_side_is_charged_with_its_own_time_only() -> None:
    now = 0.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    found = alternating(lambda: spend(3), lambda: spend(1), runs=2, clock=lambda: now)

    assert found == ((3.0, 3.0), (1.0, 1.0))


def test_a_benchmark_that_never_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="runs must be at least 1"):
        alternating(lambda: None, lambda: None, runs=0)


@pytest.mark.parametrize(
    ("unit", "ratio"),
    [
        (BenchUnit.ROWS_S, 2.0),
        (BenchUnit.SECONDS, 0.5),
        (BenchUnit.MICROS_ROW, 0.5),
        (BenchUnit.MEGABYTES, 0.5),
    ],
)
def test_a_ratio_above_one_means_that_ours_is_better_whatever_the_unit(
    unit: BenchUnit, ratio: float
) -> None:
    sides = Sides(ours=(1.0, 4.0, 90.0), rival=(2.0, 2.0, 3.0))

    assert compared(_benchmark(unit), sides, rows=1, runs=3, machine="m").ratio == ratio


def test_a_result_has_exactly_the_fields_that_were_agreed() -> None:
    sides = Sides(ours=(2.0,), rival=(1.0,), settings={"window_s": 30})

    found = compared(_benchmark(BenchUnit.ROWS_S), sides, rows=9, runs=1, machine="m").to_json()

    assert list(found) == ["name", "ours", "rival", "ratio", "unit", "settings"]
    assert found["settings"] == {
        "rows": 9,
        "runs": 1,
        "window_s": 30,
        "each": {"ours": [2.0], "rival": [1.0]},
        "machine": "m",
    }


def test_benchmarks_are_found_by_their_name() -> None:
    assert all(benchmark(name).name == name for name in BENCHMARKS)
    with pytest.raises(ConfigError, match='Unknown benchmark "speed"'):
        benchmark("speed")


def test_every_benchmark_names_a_function_that_exists() -> None:
    text = Path(registry.__file__).read_text(encoding="utf-8")
    named = re.findall(r'_lazy\("([\w.]+)", "(\w+)"\)', text)
    assert len(named) == len(registry.BENCHMARKS)
    for module, function in named:
        found = import_module(f"trimtab_lab.benchmarks.{module}")
        assert callable(getattr(found, function))
