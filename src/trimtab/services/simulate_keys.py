"""Compares policies for hot keys on simulated queues, without a broker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.measure.counters import Threshold
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.simulate.keys.policy import KeyPolicyKind
    from trimtab.simulate.keys.result import KeySimulation

ALL_POLICIES = "all"
_MOST_RECORDS = 10**11


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyComparison:
    """The records, the topic and the policies to compare.

    `policies` are names, or `all`. The keys are those of Bhattacharya & Wood: `P(k) ∝ (v + k)^−s`;
    with a shift, key `k` becomes `k + shift` every `shift_every_s`.
    """

    policies: Sequence[str]
    rate_s: float
    duration_s: float
    partitions: int
    service_s: float
    window_s: float
    threshold: Threshold
    handover_s: float = 0.001
    sla_s: float = 0.005
    shards: int = 1
    sketch: bool = True
    smooth: float | None = None
    keys: int = 28_000_000
    s: float = 1.1
    v: float = 2.72
    shift: int = 0
    shift_every_s: float = 60.0
    seed: int = 0

    @property
    def utilisation(self) -> float:
        """The utilisation of all partitions together."""
        return self.rate_s * self.service_s / self.partitions


def compare_key_policies(
    asked: KeyComparison, *, listener: ProgressListener = NO_LISTENER
) -> KeySimulation:
    """Runs all policies over the same records."""
    from trimtab.simulate.keys.engine import KeyedTopic, simulate_keys
    from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot

    kinds = _kinds(asked.policies)
    try:
        topic = KeyedTopic(
            partitions=asked.partitions,
            service_s=asked.service_s,
            window_s=asked.window_s,
            threshold=asked.threshold,
            handover_s=asked.handover_s,
            sla_s=asked.sla_s,
            shards=asked.shards,
            sketch=asked.sketch,
            smooth=asked.smooth,
        )
        stream = KeyStream(
            rate_s=asked.rate_s,
            seed=asked.seed,
            distribution=ZipfMandelbrot(s=asked.s, v=asked.v, keys=asked.keys),
            shift=asked.shift,
            shift_every_s=asked.shift_every_s,
        )
    except ValueError as error:
        raise ConfigError(f"Invalid simulation: {error}.") from error
    if asked.rate_s * asked.duration_s > _MOST_RECORDS:
        raise ConfigError(f"More than {_MOST_RECORDS:.0e} records are too many to simulate.")
    for line in doubts(asked):
        listener.warning(line)
    windows = math.ceil(asked.duration_s / asked.window_s)
    listener.progress("window", 0, windows)
    return simulate_keys(
        stream,
        topic,
        kinds,
        duration_s=asked.duration_s,
        on_window=lambda number: listener.progress("window", min(number + 1, windows), windows),
    )


def doubts(asked: KeyComparison) -> list[str]:
    """Reasons for which the result may not mean what it seems to."""
    found = []
    if asked.duration_s <= asked.window_s:
        found.append(
            "the run is not longer than one window: no policy has decided anything, and the "
            "figures are those of the warm-up"
        )
    if asked.utilisation >= 1:
        found.append(
            f"records arrive faster than all partitions together can serve them "
            f"({asked.utilisation:.0%}): delays grow with the length of the run"
        )
    return found


def _kinds(names: Sequence[str]) -> list[KeyPolicyKind]:
    from trimtab.simulate.keys.registry import key_policies, key_policy_of

    if ALL_POLICIES in names:
        return list(key_policies().values())
    return [key_policy_of(name) for name in dict.fromkeys(names)]
