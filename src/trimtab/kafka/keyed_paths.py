"""Which topics belong to the keyed data path of a topic: routes, states, hand-overs, plans.

Promise  A topic counts as Trimtab's own only if the data topic and its routing log, `<t>.assign`,
         exist beside it: users have topics with such endings, too. The data topic and its input,
         `<t>.in`, carry real load and never count as own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

ROUTES = ".assign"
_ENDINGS = (ROUTES, ".counts", ".moves")
_OF_GROUPS = (".state.", ".handover.")


def keyed_topics(names: Collection[str]) -> frozenset[str]:
    """The data topics that a gateway routes by key.

    >>> sorted(keyed_topics({"orders", "orders.assign", "seats.assign", "bills"}))
    ['orders']
    """
    routed = (name.removesuffix(ROUTES) for name in names if name.endswith(ROUTES))
    known = names if isinstance(names, set | frozenset) else frozenset(names)
    return frozenset(name for name in routed if name in known)


def keyed_own_topics(names: Collection[str]) -> frozenset[str]:
    """Those of these topics that are Trimtab's own beside a data topic.

    >>> names = {"orders", "orders.assign", "orders.state.pay", "orders.in", "bills.state.pay"}
    >>> sorted(keyed_own_topics(names))
    ['orders.assign', 'orders.state.pay']
    """
    keyed = keyed_topics(names)
    if not keyed:
        return frozenset()
    return frozenset(name for name in names if any(data in keyed for data in _data_names(name)))


def _data_names(name: str) -> Iterator[str]:
    """The data topics that a topic of this name would belong to."""
    for ending in _ENDINGS:
        if name.endswith(ending):
            yield name.removesuffix(ending)
    for middle in _OF_GROUPS:
        at = name.find(middle)
        while at >= 0:
            if at + len(middle) < len(name):
                yield name[:at]
            at = name.find(middle, at + 1)
