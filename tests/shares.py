"""The order of slow tests, so that processes that work side by side end at about the same time.

Processes get equal numbers of tests in the order of the collection, and whoever is done takes over
from the end of another's share (`--dist=worksteal`). So each share begins with long modules, whole,
and ends with short tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeVar

_Test = TypeVar("_Test")

COSTS_S = {
    "kafka/test_measure.py": 330,
    "kafka/test_faults.py": 300,
    "kafka/test_quickstart.py": 190,
    "kafka/test_live.py": 160,
    "kafka/test_demo.py": 140,
    "kafka/test_group_mode.py": 120,
    "kafka/test_deployed.py": 110,
    "kafka/test_standalone_rates.py": 110,
    "kafka/test_coordinators.py": 90,
    "spark/test_standalone.py": 70,
    "kafka/test_evaluate.py": 60,
}
"""About what the longest modules take beside others."""


def in_shares(
    tests: Sequence[tuple[str, _Test]], costs_s: Mapping[str, float], processes: int
) -> list[_Test]:
    """Tests with the names of their modules, in an order that gives each process a fair share.

    Modules with a cost go to the process that has the least to do, the longest first. The others
    fill the shares in the order in which they are.

    >>> tests = [("a", "a1"), ("b", "b1"), ("c", "c1"), ("c", "c2"), ("d", "d1"), ("e", "e1")]
    >>> in_shares(tests, {"e": 9, "c": 5, "d": 3}, 2)
    ['e1', 'a1', 'b1', 'c1', 'c2', 'd1']
    """
    modules = [list(group) for _, group in groupby(tests, key=lambda test: test[0])]
    long = [module for module in modules if module[0][0] in costs_s]
    short = iter([test for module in modules if module not in long for _, test in module])
    shares: list[list[_Test]] = [[] for _ in range(processes)]
    busy_s = [0.0] * processes
    for module in sorted(long, key=lambda module: -costs_s[module[0][0]]):
        least = busy_s.index(min(busy_s))
        shares[least] += [test for _, test in module]
        busy_s[least] += costs_s[module[0][0]]
    left = len(tests)
    for number, share in enumerate(shares):
        size = left // (processes - number)
        share += [test for _, test in zip(range(size - len(share)), short, strict=False)]
        left -= len(share)
    return [test for share in shares for test in share] + list(short)
