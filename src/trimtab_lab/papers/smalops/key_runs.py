"""Cells of the simulations: the figures of one policy on one stream of keyed records.

Promise  Pure: equal parameters give equal figures. Cells with the same stream, seed and duration
         have the same records, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from statistics import fmean
from typing import Any

from trimtab.measure.counters import Threshold, parse_threshold
from trimtab.model.key_counts import KeyCounts
from trimtab.model.plan import Layer
from trimtab.plan.keys.planner import (
    BalancedLoad,
    CoolBelow,
    InitialPlace,
    KeyContext,
    KeyDecision,
    KeyOptions,
    KeyRule,
)
from trimtab.plan.registry import planner_of
from trimtab.simulate.keys.engine import KeyedTopic, simulate_keys
from trimtab.simulate.keys.policy import KeyPolicyKind, KeyPolicySettings
from trimtab.simulate.keys.registry import key_policy_of, planner_policy
from trimtab.simulate.keys.result import KeySimulation, PolicyRun
from trimtab.workload.key_streams import KeyStream
from trimtab_lab.papers.grid import code_version
from trimtab_lab.papers.published import smalops as paper

PROBABILITIES = tuple(round(1 - 10 ** (-step / 16), 9) for step in range(65))
"""From 0 to 99.99 %, sixteen per further nine."""

SUMMARY = (
    "p50_us",
    "p90_us",
    "p99_us",
    "p999_us",
    "sla_share",
    "imbalance",
    "e_lb",
    "migrations",
    "tracked",
)
"""The figures of a run that tables show."""

PLANNERS = ("smalops", "trim")
"""Policies that are planners: they take options."""

_OPTIONS: Mapping[str, type[StrEnum]] = {
    "cool_below": CoolBelow,
    "initial": InitialPlace,
    "load": BalancedLoad,
}


def simulated(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Delays, imbalance, migrations and tracked keys of one run; the first window is left out."""
    topic = KeyedTopic(
        partitions=parameters["partitions"],
        service_s=parameters["service_us"] * 1e-6,
        window_s=parameters["window_s"],
        threshold=_threshold(parameters["options"]),
        sla_s=parameters["sla_us"] * 1e-6,
        sketch=False,
    )
    stream = KeyStream(
        rate_s=parameters["rate_s"],
        seed=parameters["seed"],
        shift=parameters["shift"],
        shift_every_s=paper.SHIFT_EVERY_S,
    )
    kind = _kind(parameters["policy"], parameters["options"])
    found = simulate_keys(stream, topic, [kind], duration_s=parameters["duration_s"])
    return _figures(found, found.runs[0])


def code_of(policy: str) -> str:
    """The version of all code that the figures of a policy depend on."""
    if policy in PLANNERS:
        rule = planner_of(Layer.KEYS, policy).rule
        return code_version([__name__, "trimtab.simulate.keys.planned", str(rule.__module__)])
    settings = KeyPolicySettings(partitions=2, window_s=1.0, service_s=1.0, handover_s=0.0)
    created = key_policy_of(policy).create(settings)
    return code_version([__name__, type(created).__module__])


def after_shift(start_s: float, window_s: float) -> bool:
    """Whether a window is the first one after a shift; the first of a run counts as such."""
    return start_s % paper.SHIFT_EVERY_S < window_s - 1e-9


def _threshold(options: Mapping[str, Any]) -> Threshold:
    return parse_threshold(options.get("threshold", f"count:{paper.HOT_COUNT}"))


def _kind(policy: str, options: Mapping[str, Any]) -> KeyPolicyKind:
    if policy not in PLANNERS:
        return key_policy_of(policy)
    asked = {name: kind(options[name]) for name, kind in _OPTIONS.items() if name in options}
    planner = planner_of(Layer.KEYS, policy).with_options(**asked)
    if first := options.get("first_plan", 0):
        planner = replace(planner, rule=partial(_numbered, planner.rule, first))
    return planner_policy(planner, name=policy, what=policy, chosen="")


def _numbered(
    rule: KeyRule[Any],
    first: int,
    counts: KeyCounts,
    options: KeyOptions,
    context: KeyContext,
    /,
) -> KeyDecision:
    """Counts plans from another number on: the two choices of each key are then others."""
    return rule(counts, options, replace(context, plan_number=first + context.plan_number))


def _figures(found: KeySimulation, run: PolicyRun) -> dict[str, Any]:
    window_s = found.window_s
    starts = [window.number * window_s for window in run.windows]
    whole = run.measured
    p50, p90, p99, p999 = (_us(value) for value in whole.quantiles_s((0.5, 0.9, 0.99, 0.999)))
    settled = [n for n, start in enumerate(starts) if n and not after_shift(start, window_s)]
    return {
        "records": found.records,
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "p999_us": p999,
        "p99_without_first_us": _p99(run, settled),
        "minutes_p99_us": _minutes(run, starts),
        "sla_share": whole.within_share,
        "imbalance": run.mean_imbalance,
        "imbalance_bound": found.bound,
        "e_lb": run.mean_e_lb,
        "migrations": run.moved,
        "migrations_by": dict(run.moves),
        "tracked": fmean(window.tracked for window in run.measured_windows),
        "split_keys": run.split_keys,
        "quantiles_us": [_us(value) for value in whole.quantiles_s(PROBABILITIES)],
        "windows": {
            "start_s": starts,
            "p99_us": [_p99(run, [number]) for number in range(len(starts))],
            "imbalance": [_tidy(window.imbalance) for window in run.windows],
            "migrations": [window.moved for window in run.windows],
            "tracked": [window.tracked for window in run.windows],
        },
    }


def _minutes(run: PolicyRun, starts: Sequence[float]) -> list[float]:
    """The p99 of each whole minute, without the first 20 s after the shift at its beginning."""
    minutes: dict[int, list[int]] = {}
    for number, start_s in enumerate(starts):
        minute, second = divmod(start_s, paper.SHIFT_EVERY_S)
        if second >= paper.SETTLED_AFTER_S:
            minutes.setdefault(int(minute), []).append(number)
    return [_p99(run, numbers) for numbers in minutes.values()]


def _p99(run: PolicyRun, windows: Sequence[int]) -> float:
    return _us(run.delays_of(windows).quantile_s(0.99))


def _us(seconds: float) -> float:
    return _tidy(seconds * 1e6)


def _tidy(value: float) -> float:
    return float(f"{value:.9g}")
