"""Tests whether a move of a key is worth its cost.

Promise  `eq4` is the paper's inequality as printed: `D·(1/R_t − R_k/R_p) > t_SM`, and an empty
         target is always worth it; it hardly ever holds for a hot key. `delay` compares the
         waiting saved over one window, by M/D/1 queues at both partitions, with the time that the
         records of the key wait while its state moves. Both sides are rounded to 9 digits.
Cost     O(1) per move.
Paper    Bhattacharya & Wood, equation (4); `delay` is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from trimtab.errors import ConfigError
from trimtab.plan.keys.greedy import Accepts, GreedyStep
from trimtab.plan.keys.planner import KeyOptions, WorthTest

_FULL = 0.999
"""Utilisation from which waiting grows in proportion to the time instead of without bound."""


def chosen_test(options: KeyOptions) -> WorthTest:
    """The test that the options ask for."""
    if options.worth is not None:
        return options.worth
    return WorthTest.NONE if options.state_s is None else WorthTest.DELAY


def worth_test(options: KeyOptions, totals: Sequence[int], window_s: float) -> Accepts | None:
    """The test of moves; None if every move is made.

    `totals` are all records by partition, kept up to date by the caller after every move.
    """
    kind = chosen_test(options)
    if kind is WorthTest.NONE:
        return None
    if options.service_s is None or not options.service_s > 0:
        raise ConfigError(
            f"The test of moves by {kind} needs the processing time of a record.",
            hint="Give a service time above 0 (--service).",
        )
    service_s, state_s = options.service_s, options.state_s or 0.0
    match kind:
        case WorthTest.EQ4:
            return lambda step: _is_worth_eq4(step, window_s, service_s, state_s)
        case WorthTest.DELAY:
            return _delay_test(totals, window_s, service_s, state_s)
        case _:
            assert_never(kind)


def _is_worth_eq4(step: GreedyStep, window_s: float, service_s: float, state_s: float) -> bool:
    if step.load_to == 0:
        return True
    saved = service_s * (window_s / step.load_to - step.key.count / step.load_from)
    return rounded(saved) > rounded(state_s)


def _delay_test(
    totals: Sequence[int], window_s: float, service_s: float, state_s: float
) -> Callable[[GreedyStep], bool]:
    def waiting(rate: float) -> float:
        return waiting_per_second(rate, service_s=service_s, horizon_s=window_s)

    def is_worth(step: GreedyStep) -> bool:
        moved = step.key.count / window_s
        source, target = (totals[p] / window_s for p in (step.source, step.target))
        saved = (
            waiting(source) + waiting(target) - waiting(source - moved) - waiting(target + moved)
        )
        queued = waiting(source) / source if source > 0 else 0.0
        parked_s = queued + service_s + state_s
        return rounded(window_s * saved) > rounded(moved * parked_s**2 / 2)

    return is_worth


def waiting_per_second(rate: float, *, service_s: float, horizon_s: float) -> float:
    """The seconds that records wait per second at an M/D/1 queue of this arrival rate.

    >>> waiting_per_second(50.0, service_s=0.01, horizon_s=10)
    0.25
    """
    used = rate * service_s
    if used >= _FULL:
        most = _FULL / service_s
        at_full = most * _FULL * service_s / (2 * (1 - _FULL))
        return at_full + rate * horizon_s * (used - _FULL) / 2
    return rate * used * service_s / (2 * (1 - used))


def rounded(value: float) -> float:
    """The value with 9 significant digits, so that two machines compare it alike.

    >>> rounded(0.1 + 0.2)
    0.3
    """
    return float(f"{value:.8e}")
