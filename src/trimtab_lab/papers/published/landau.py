"""Landau et al.: the figures of the paper, and the tolerances for ours.

Source: "Multi-Objective Optimization of Consumer Group Autoscaling in Message Broker Systems".
Figures 9 to 12 (CBS, E[Rscore]) are plots: their numbers are the authors' published data
(github.com/landaudiogo/thesis_data, named in section VI-E). Headline: sections VI-E and VII;
latency: VI-C; live system: VI-F. Conditions: 200 partitions, 500 iterations and the initial state,
capacity 100, integer loads, uniform start, next fit from consumer 0, online orders shuffled at each
iteration. The tolerances are for means of 3 streams: the distance that such means were found to
have from the paper's single stream, limited to a fraction of the figure.
"""

from __future__ import annotations

from collections.abc import Mapping

DELTAS = (0, 5, 10, 15, 20, 25)

CBS: Mapping[str, tuple[float, ...]] = {
    "nf": (0.248, 0.283, 0.290, 0.279, 0.264, 0.264),
    "nfd": (0.214, 0.238, 0.241, 0.224, 0.209, 0.206),
    "ff": (0.069, 0.081, 0.078, 0.071, 0.063, 0.062),
    "ffd": (0.0, 0.001, 0.001, 0.000, 0.000, 0.000),
    "bf": (0.023, 0.037, 0.039, 0.036, 0.033, 0.032),
    "bfd": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "wf": (0.112, 0.135, 0.132, 0.123, 0.115, 0.113),
    "wfd": (0.0, 0.002, 0.004, 0.002, 0.001, 0.002),
    "mwf": (0.0, 0.118, 0.115, 0.105, 0.094, 0.088),
    "mbf": (0.0, 0.038, 0.032, 0.026, 0.022, 0.018),
    "mwfp": (0.0, 0.123, 0.124, 0.111, 0.094, 0.085),
    "mbfp": (0.0, 0.002, 0.003, 0.002, 0.002, 0.001),
}

E_RSCORE: Mapping[str, tuple[float, ...]] = {
    "nf": (30.2, 31.5, 32.0, 31.5, 31.5, 31.9),
    "nfd": (0.0, 20.5, 21.5, 20.6, 19.9, 19.7),
    "ff": (24.1, 26.6, 28.3, 28.4, 29.3, 30.4),
    "ffd": (0.0, 24.0, 25.4, 25.5, 25.7, 26.3),
    "bf": (25.2, 29.6, 30.5, 30.9, 31.5, 32.8),
    "bfd": (0.0, 24.2, 25.5, 25.5, 25.8, 26.4),
    "wf": (23.1, 25.5, 26.7, 26.9, 27.5, 28.5),
    "wfd": (0.0, 24.1, 25.2, 25.3, 25.5, 26.2),
    "mwf": (0.0, 9.2, 11.8, 12.8, 13.8, 15.0),
    "mbf": (0.0, 16.0, 18.9, 19.9, 20.6, 21.5),
    "mwfp": (0.4, 16.9, 17.0, 17.2, 17.8, 18.6),
    "mbfp": (0.0, 23.1, 24.2, 24.0, 23.8, 24.1),
}

ON_THE_FRONT = frozenset({"bfd", "ffd", "mbfp", "mbf", "mwf"})
"""At every delta from 5 on, for the mean over four starts."""

NEVER_ON_THE_FRONT = frozenset({"nf", "ff", "bf", "wf", "nfd"})

HEADLINE: Mapping[int, tuple[float, float]] = {5: (0.118, 0.55), 25: (0.088, 0.23)}
"""By delta: MWF's additional consumers (against BFD) and reduction in Rscore (against NFD)."""

LATENCY_P90_S: Mapping[str, float] = {"mwf": 4.52, "kd_15": 217.0, "kd_24": 2.70, "kd_30": 1.11}
"""90th percentile of the latencies above 0; `kd_n` is Kafka's own assignment with n consumers."""

MWF_CONSUMERS = 15.0
"""Mean over the stream behind the latencies."""

PEAK_MB_S = 2.3
"""Figure 13: the mode of a consumer's measured throughput in all three conditions of Table VI."""

PEAK_CONDITIONS: Mapping[str, tuple[float, int, int]] = {
    "test 1": (648.0, 32, 1),
    "test 2": (100.0, 116, 5),
    "test 3": (678.0, 144, 5),
}
"""Table VI: megabytes in all, partitions, tables."""

RESPONSES_S: Mapping[str, float] = {
    "measure": 30.0,
    "decide": 1.0,
    "create": 50.0,
    "hand over": 5.0,
}
"""Figures 14 to 17 in seconds: moving average; maximum; maximum in 88 % of cases; approximate."""

LEAST_CBS_TOLERANCE, LEAST_RSCORE_TOLERANCE = 0.003, 0.05
"""For figures that are 0 or almost 0; they are published with three digits and one digit."""

_UNSORTED = frozenset({"nf", "ff", "bf", "wf"})


def published(table: Mapping[str, tuple[float, ...]], planner: str, delta: float) -> float | None:
    """The figure of a planner at a delta; None if the paper has none."""
    row = table.get(planner)
    return row[DELTAS.index(int(delta))] if row is not None and delta in DELTAS else None


def cbs_tolerance(planner: str, delta: float) -> float | None:
    """Tolerance of a cardinal bin score; None if it is not compared.

    At delta 0 loads do not change, so a figure depends on one random draw: it is not compared if
    draws differ by half of it or more.
    """
    expected = published(CBS, planner, delta) or 0.0
    if delta == 0:
        if planner not in _UNSORTED | {"nfd"}:
            return 0.001
        return 0.045 if expected > 2 * 0.045 else None
    if expected < 0.005:
        return LEAST_CBS_TOLERANCE
    return min({5: 0.025, 10: 0.015}.get(int(delta), 0.010), expected / 4)


def rscore_tolerance(planner: str, delta: float) -> float | None:
    """Tolerance of an E[Rscore]; None if it is not compared (see `cbs_tolerance`)."""
    expected = published(E_RSCORE, planner, delta) or 0.0
    if delta == 0:
        if planner in _UNSORTED:
            return 0.20 * expected
        return None if expected else LEAST_RSCORE_TOLERANCE
    return {5: 0.10, 10: 0.06}.get(int(delta), 0.05) * expected


def relative_tolerance(delta: float) -> float:
    """Tolerance of an E[Rscore] as a fraction of the figure, from delta 5 on."""
    return {5: 0.10, 10: 0.06}.get(int(delta), 0.05)
