import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

from tests.unit.report.report_values import (
    OWNERS,
    SETTINGS,
    STATES,
    history,
    key,
    measurement,
    partition,
    plan,
)
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan_codec import plan_id
from trimtab.report.measurement_page import page


class _Seen(HTMLParser):
    """Tags with their attributes, and the text outside of figures."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words = [], []
        self._drawing = 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._drawing += tag in ("svg", "style")

    def handle_endtag(self, tag):
        self._drawing -= tag in ("svg", "style")

    def handle_data(self, data):
        if not self._drawing and data.strip():
            self.words.append(data.strip())


@cache
def usual():
    return made()


def made(found=None, states=STATES, chosen=None, settings=SETTINGS, rates_history=None):
    found = found or measurement()
    return page(
        found,
        history() if rates_history is None else rates_history,
        states,
        chosen or plan(found),
        settings,
    )


def test_the_page_loads_nothing_from_anywhere():
    html = usual()

    seen = _Seen(html)
    loading = ("script", "link", "img", "iframe", "object", "embed", "video", "audio", "base")
    assert [tag for tag, _ in seen.tags if tag in loading] == []
    refers = [a.get("src") or a.get("href") or a.get("xlink:href") for _, a in seen.tags]
    assert [r for r in refers if r and not r.startswith("#")] == []
    assert not re.search(r"@import|url\((?!#)", html)


def test_the_page_has_all_figures_and_no_id_twice():
    html = usual()

    figures = [a["aria-label"] for tag, a in _Seen(html).tags if tag == "svg"]
    assert figures == [
        "rate of each partition",
        "rates over time",
        "heavy keys",
        "lag of group billing",
        "load of each consumer, before and after",
    ]
    named = re.findall(r'<(?:g|svg|text)[^>]* id="([^"]+)"', html)
    assert len(named) == len(set(named))


def test_the_plan_stands_with_its_figures_and_every_move_with_its_reason():
    chosen = plan()

    words = " ".join(_Seen(usual()).words)

    assert plan_id(chosen) in words
    assert chosen.snapshot in words
    assert f"112% → {chosen.after.max_load / 800:.0%}" in words
    assert f"{chosen.bound} (gap {chosen.gap:.0%})" in words
    assert chosen.moves
    for move in chosen.moves:
        assert f"{move.name} {move.source} → {move.target}" in words
    assert "overload: consumer 0 had 900 records/s, its capacity is 800 records/s" in words


def test_settings_and_partitions_are_listed():
    words = " ".join(_Seen(usual()).words)

    assert "Kafka 4.3.1 seed 0" in words
    assert "orders-3 12 kB/s 50 records/s" in words
    assert "billing 400, 1.5 s, error" in words


def test_names_from_outside_are_text_never_markup():
    evil = "<script>alert(1)</script>"
    found = measurement(
        keys=(key(evil.encode()),), partitions=(partition(0, lag={evil: 3}, lag_s={}),)
    )
    chosen = replace(plan(found), scope=replace(plan(found).scope, group=evil))

    html = made(found, {(evil, partition(0).name): "ok"}, chosen, {evil: evil})

    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 5


def test_what_is_unknown_is_said_and_not_summed():
    found = measurement(
        partitions=(partition(0), partition(1, bytes_s=None, lag={"billing": None}, lag_s={})),
        keys=(),
    )

    words = " ".join(_Seen(made(found)).words)

    assert "orders-1 unknown 200 records/s" in words
    assert "billing unknown" in words
    assert "records behind" not in words
    assert "No key is heavy" in words


def test_a_level_group_gets_a_page_without_moves():
    chosen = plan(limits=GroupLimits(capacity=1000, unit=Unit.RECORDS_S), owners=OWNERS)
    still = replace(chosen, moves=(), assignment=OWNERS, after=chosen.before)

    words = _Seen(made(chosen=still, rates_history={})).words

    assert "None." in words
    assert "why" not in words


def test_a_partition_that_fits_nowhere_is_named():
    words = " ".join(_Seen(made(chosen=plan(limits=GroupLimits(capacity=168_000 - 1000)))).words)

    assert "Too heavy for any consumer: orders-0 (168 kB/s): oversize" in words


def test_equal_values_give_an_equal_page():
    assert made() == usual()
