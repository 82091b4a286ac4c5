import re
from functools import cache
from xml.etree import ElementTree

import matplotlib
import pytest

from tests.unit.report.report_values import (
    LIMITS,
    OWNERS,
    STATES,
    P,
    history,
    key,
    measurement,
    partition,
    plan,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Unit
from trimtab.report import plots

LOADS = measurement().loads(Unit.RECORDS_S)
AFTER = plan().assignment
FIGURES = {
    "rates": lambda: plots.rates(LOADS, OWNERS, Unit.RECORDS_S),
    "rates_over_time": lambda: plots.rates_over_time(history(), from_ts=0, unit=Unit.BYTES_S),
    "heavy_keys": lambda: plots.heavy_keys(measurement().keys),
    "lag": lambda: plots.lag(measurement().partitions, "billing", STATES),
    "consumers": lambda: plots.consumers(LOADS, OWNERS, AFTER, LIMITS),
}


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.text]


def bars_of(svg, colour):
    return len(re.findall(rf'<path d="[^"]*"[^>]*style="fill: {colour}', svg))


@cache
def drawn(name):
    return FIGURES[name]()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_well_formed_and_says_what_it_is(name):
    root = ElementTree.fromstring(drawn(name))

    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.get("viewBox")
    assert root.get("width") is None


@pytest.mark.parametrize("name", FIGURES)
def test_equal_values_give_an_equal_figure(name):
    assert FIGURES[name]() == drawn(name)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_refers_only_to_what_it_holds_and_takes_the_colour_around_it(name):
    svg = drawn(name)

    ids = set(re.findall(r' id="([^"]+)"', svg))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg)) <= ids
    assert "currentColor" in svg
    assert not re.search(r"https?://(?!www\.w3\.org/)", svg)


def test_other_figures_of_the_process_keep_their_style():
    before = dict(matplotlib.rcParams)

    plots.rates(LOADS, OWNERS, Unit.RECORDS_S)

    assert dict(matplotlib.rcParams) == before


def test_a_bar_has_the_colour_of_the_consumer_that_reads_it():
    svg = plots.rates(LOADS, Assignment({P[0]: 0, P[1]: 0, P[2]: 1}), Unit.RECORDS_S)

    # the third is in the legend; what nobody reads is grey and has none
    assert [bars_of(svg, c) for c in (plots.BLUE, plots.ORANGE, plots.GREY)] == [3, 2, 1]
    assert "consumer 0" in words(svg)
    assert "records/s" in words(svg)


def test_of_many_partitions_the_heaviest_are_shown_and_the_rest_is_counted():
    loads = {TopicPartition("orders", n): float(n) for n in range(50)}

    text = words(plots.rates(loads, Assignment(), Unit.BYTES_S))

    assert "partition of orders (the 40 heaviest of 50)" in text
    assert "49" in text
    assert "9" not in text


def test_partitions_of_several_topics_have_their_full_names():
    loads = {TopicPartition("a", 0): 1.0, TopicPartition("b", 0): 2.0}

    assert {"a-0", "b-0"} <= set(words(plots.rates(loads, Assignment(), Unit.BYTES_S)))


def test_an_overloaded_consumer_is_red_and_shows_its_share():
    svg = plots.consumers(LOADS, OWNERS, AFTER, LIMITS)

    # before: 900 of 800 and 150 of 800
    assert bars_of(svg, plots.RED) == 1 + 1
    assert any("112% →" in text for text in words(svg))
    assert "over its capacity" in words(svg)


def test_without_overload_nothing_is_red():
    svg = plots.consumers(LOADS, OWNERS, OWNERS, GroupLimits(capacity=1000, unit=Unit.RECORDS_S))

    assert plots.RED not in svg


def test_lag_is_coloured_by_state_and_unknown_lag_is_a_question():
    found = [partition(0), partition(1, lag={"billing": None}), partition(2, lag={"other": 3})]

    svg = plots.lag(found, "billing", {("billing", P[0]): "error"})

    assert bars_of(svg, plots.RED) == 1 + 1
    assert "?" in words(svg)
    assert "unknown" in words(svg)
    assert "2" not in words(svg)


def test_the_doubtful_part_of_a_count_is_shown_only_where_there_is_one():
    sure, doubtful = plots.heavy_keys([key(upper=3000)]), plots.heavy_keys([key()])

    assert "at most" not in words(sure)
    assert "at most" in words(doubtful)


@pytest.mark.parametrize("name", [b"$x^2$ & <b>", b"\xff\x00", "日本".encode(), b"x" * 99, b""])
def test_any_key_can_be_drawn_as_it_is(name):
    svg = plots.heavy_keys([key(name)])

    assert plots.label(name) in (words(svg) if name else ["", *words(svg)])


def test_the_fastest_partitions_are_named_and_the_others_counted():
    start = next(iter(history().values()))[0]
    many = {
        TopicPartition("orders", n): [start._replace(records_s=float(n), ts=start.ts + t)]
        for n in range(9)
        for t in (0, 1)
    }

    text = words(plots.rates_over_time(many, from_ts=start.ts, unit=Unit.RECORDS_S))

    assert {"orders-8", "orders-4", "4 others"} <= set(text)
    assert "orders-3" not in text


def test_an_unknown_rate_leaves_a_hole_not_a_zero():
    point = next(iter(history().values()))[0]

    assert point._replace(records_s=None).rate(Unit.RECORDS_S) is None
    plots.rates_over_time({P[0]: [point._replace(records_s=None)]}, from_ts=0, unit=Unit.RECORDS_S)
