"""The keys simulation as tables and as a page."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trimtab.measure.counters import Count
from trimtab.report.key_simulation import key_simulation_view, moves_in_words
from trimtab.report.key_simulation_page import LOOKS, key_simulation_page
from trimtab.simulate.keys.engine import KeyedTopic, simulate_keys
from trimtab.simulate.keys.registry import key_policies
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot

TOPIC = KeyedTopic(partitions=4, service_s=0.001, window_s=1.0, threshold=Count(20))
STREAM = KeyStream(rate_s=3000.0, seed=3, distribution=ZipfMandelbrot(keys=2000))


@pytest.fixture(scope="module")
def found():
    return simulate_keys(STREAM, TOPIC, list(key_policies().values()), duration_s=3.0)


def shown(view):
    console = Console(file=io.StringIO(), width=160)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_policy_has_a_row_in_both_tables(found):
    text = shown(key_simulation_view(found, sla_s=0.005, utilisation=0.75))

    assert all(text.count(f" {name} ") >= 2 for name in key_policies())
    assert "75.0% busy" in text


def test_moves_are_given_per_decision(found):
    run = found.run("dkg")

    assert moves_in_words(run) == f"learn {run.moved / 2:,.0f}"
    assert moves_in_words(found.run("hash")) == "–"


def test_every_policy_has_a_look_of_its_own():
    assert list(LOOKS) == list(key_policies())
    assert len(set(LOOKS.values())) == len(LOOKS)


def test_the_page_has_figures_rows_and_choices(found):
    page = key_simulation_page(found, {"seed": "3"})

    assert page == key_simulation_page(found, {"seed": "3"})
    assert page.count("<svg") == 3
    for kind in key_policies().values():
        assert f"<td>{kind.what}</td>" in page.replace("&#39;", "'").replace("&amp;", "&")
    assert '<th scope="row">seed</th><td>3</td>' in page


def test_a_run_without_records_or_decisions_still_has_a_page():
    class Nothing:
        rate_s = 1.0

        def blocks(self, duration_s, *, block_records):
            yield from ()

    empty = simulate_keys(Nothing(), TOPIC, [key_policies()["hash"]], duration_s=3.0)

    assert "<svg" not in key_simulation_page(empty, {})
    assert "0 records in 1 windows" in shown(
        key_simulation_view(empty, sla_s=0.005, utilisation=0.0)
    )
