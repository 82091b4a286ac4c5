"""How `trimtab run` shows decisions: when they change, once, with the time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from trimtab.cli.decision_output import _Shown, gist, shown_line
from trimtab.model.control import Action, Decision

OVER = "consumer 0 carries {} bytes/s, above 100; no plan relieves it"


def decision(reason: str, action: Action = Action.NONE, after: int = 1) -> Decision:
    return Decision(ts=0, group="g", action=action, before=1, after=after, reason=reason)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (OVER.format("120.3"), OVER.format("1.2e+05")),
        ("consumer 0 carries 120 bytes/s, above 100", "consumer 3 carries 121 bytes/s, above 100"),
        ("consumer 0 has lag 600, above 500", "consumer 1 has lag 5, above 500"),
        ("the rates are 60.1 s old, the limit is 10", "the rates are 9 s old, the limit is 10"),
        ("waiting for consumer 1 to start: 5 s", "waiting for consumer 1 to start: 16 s"),
    ],
)
def test_measured_figures_do_not_make_a_decision_another_one(first, second):
    assert gist(decision(first)) == gist(decision(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("nobody reads orders-0", "nobody reads orders-1"),
        ("waiting for consumer 0 to start", "waiting for consumer 1 to start"),
        ("group v2-orders has members", "group v3-orders has members"),
    ],
)
def test_names_and_indexes_do(first, second):
    assert gist(decision(first)) != gist(decision(second))


def test_the_same_decision_is_shown_once_until_another_one_came():
    shown = _Shown()
    up = decision("2 consumers are needed instead of 1", Action.SCALE_UP, after=2)

    said = [shown.is_news(d) for d in (up, up, decision("all is well"), up, up)]

    assert said == [True, False, True, True, False]


def test_a_line_has_the_time_of_the_decision():
    made = replace(decision("why", Action.SCALE_UP, after=2), ts=1_700_000_000_000_000)

    line = shown_line(made)

    local = datetime.fromtimestamp(1_700_000_000, tz=UTC).astimezone()
    assert re.fullmatch(rf"{local:%H:%M:%S}  scale_up +1 → 2 +why", line)
