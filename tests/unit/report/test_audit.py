"""An audit as tables, figures and a page."""

from __future__ import annotations

import html
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from trimtab.audit.leader_moves import kafka_json
from trimtab.audit.loads import TopicLoad, topic_rates
from trimtab.audit.topology import Audit, AuditOptions, audit
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.load import Unit
from trimtab.report import audit_plots
from trimtab.report.audit import audit_view
from trimtab.report.audit_page import audit_page
from trimtab.testing.placements import led, placement, random_placement

RATES = TopicLoad(by_topic={"A": 6e6, "B": 2e6}, unit=Unit.BYTES_S)
UNEVEN = led({"A": {1: 1, 2: 2}, "B": {2: 1, 3: 1}})
EMPTY = (
    placement({}),
    placement({"A": [[], []]}, brokers=[7]),
    placement({"A": [[5]]}),
    placement({}, brokers=[1, 2]),
)


def text(found: Audit, *, width: int = 120, worst: int = 10) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(audit_view(found, worst=worst))
    return captured.get()


def words(svg: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.text]


def test_the_tables_say_who_carries_what_and_what_is_worst() -> None:
    shown = text(audit(UNEVEN, RATES))

    assert "broker 2 has 1.88 times the mean" in shown
    assert "→ 1 leader move to replicas in sync" not in shown  # there is one replica of each
    assert re.search(r"to partitions in turn \(default\)\s+5 MB/s\s+2\s+1\.88", shown)
    assert re.search(r"least possible\s+3 MB/s\s+1, 2\s+1\.12", shown)
    assert re.search(r"▶ 2\s+3", shown)


def test_without_rates_the_topics_that_would_hurt_most_are_named() -> None:
    shown = text(audit(UNEVEN))

    assert "every topic counts 1" in shown
    assert "if A doubled" in shown
    assert "Brokers (no rates: partitions led)" in shown
    assert "1.80 × mean, 3 leaders" in shown


def test_where_no_partitioner_helps_that_is_said() -> None:
    rates = TopicLoad(by_topic={"A": 9.0, "B": 1.0}, unit=Unit.RECORDS_S)

    found = audit(led({"A": {1: 1}, "B": {2: 1}}), rates)

    said = (
        "No partitioner can reach less than 1.80 × the mean: 1 topic (A) can go only to 1 broker "
        "(1). Move leaders or replicas (kafka-reassign-partitions)."
    )
    assert said in " ".join(re.sub(r"\s+", " ", text(found, width=200)).split())
    assert said in audit_page(found)


def measured(snapshot: ClusterSnapshot, *rates: float) -> Audit:
    found = {p.name: rate for p, rate in zip(snapshot.partitions, rates, strict=True)}
    return audit(snapshot, topic_rates(snapshot, found, Unit.BYTES_S))


def test_with_rates_the_first_figures_and_the_bars_are_what_was_measured() -> None:
    found = measured(placement({"A": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}), 9e6, 5e5, 5e5)

    page, shown = audit_page(found), text(found)

    assert '<div class="value">2.70 ×</div>' in page
    assert "A-0, 9 MB/s" in page
    assert "2.70 × mean, 9 MB/s" in shown
    assert "No findings" not in shown
    assert "as measured" in words(audit_plots.loads(found))
    assert "1.90" in words(audit_plots.failures(found))


def test_a_topic_known_by_its_load_is_not_called_uneven_by_its_counts() -> None:
    found = measured(placement({"A": [[1, 2], [2, 1], [2, 1], [2, 1]]}), 3, 1, 1, 1)

    assert "No findings: loads are even" in text(found)
    assert re.search(r"A\s+1: 1, 2: 3\s+1\.50\s+by load", text(found))
    assert "more than necessary" not in words(audit_plots.matrix(found))


@pytest.mark.parametrize("partitions", [1, 2, 5, 40])
def test_without_rates_the_axis_counts_whole_leaders(partitions: int) -> None:
    snapshot = placement({"A": [[n % 5 + 1] for n in range(partitions)]}, brokers=range(1, 6))
    found = audit(snapshot)

    for figure in (
        audit_plots.loads(found),
        audit_plots.worst_failure(found, found.carried_after(found.faults[0])),
    ):
        said = [word for word in words(figure) if word.strip()]
        upwards = said[said.index("broker") + 1 : said.index("partitions led")]
        assert len(upwards) >= 2
        assert all(number.isdigit() for number in upwards), upwards


def test_sizes_are_shown_as_bytes_where_there_are_no_rates() -> None:
    placed = placement({"A": [[1], [2]]})
    sized = replace(
        placed, partitions=tuple(replace(p, log_bytes=10**9) for p in placed.partitions)
    )

    assert "no rates: bytes stored" in text(audit(sized))
    assert "1.00 × mean, 1 GB" in text(audit(sized))
    assert "bytes stored" in words(audit_plots.loads(audit(sized)))


def test_the_page_has_the_leader_moves_and_the_commands_for_them() -> None:
    options = AuditOptions(server="b1:9092")
    found = audit(placement({f"t{n}": [[1, 2, 3]] for n in range(9)}), options=options)

    page = audit_page(found)

    (moves,) = re.findall(r"<summary>leader-moves.json</summary>\n.*?<pre>(.*?)</pre>", page, re.S)
    assert json.loads(html.unescape(moves)) == kafka_json(found.leader_moves)
    assert "kafka-reassign-partitions.sh --bootstrap-server b1:9092 " in page
    assert "--election-type preferred --path-to-json-file leader-moves.json" in page
    assert "leader-moves.json" not in audit_page(audit(UNEVEN))


def test_the_worst_failure_of_one_broker_is_shown_beside_those_of_several() -> None:
    found = audit(placement({"A": [[1, 2], [2, 1]]}), options=AuditOptions(up_to=2))

    shown = text(found, worst=1)

    assert re.search(r"▶ 1, 2\s+2", shown)
    assert re.search(r"\n\s+1\s+–", shown)


def test_a_long_list_is_cut_and_the_rest_is_told() -> None:
    shown = text(audit(random_placement(topics=60, brokers=50, partitions=4)), worst=3)

    assert "and 10 less busy ones, in the JSON" in shown
    assert "and 47 less severe ones, in the JSON" in shown
    assert "more pairs, in the JSON" in shown


@pytest.mark.parametrize("snapshot", EMPTY)
def test_a_cluster_with_next_to_nothing_is_shown_all_the_same(snapshot: ClusterSnapshot) -> None:
    found = audit(snapshot)

    assert "cluster unknown" in text(found)
    assert "Topology of the cluster" in audit_page(found)


def test_a_narrow_terminal_shows_every_failure_still() -> None:
    assert re.search(r"▶ 2 ", text(audit(UNEVEN), width=80))


def test_the_matrix_has_a_number_for_every_leader_and_marks_what_is_uneven() -> None:
    figure = audit_plots.matrix(audit(UNEVEN))

    said = words(figure)
    assert [said.count(name) for name in ("A", "B")] == [1, 1]
    assert "1.33 × mean" in said
    assert "more than other leaders" in said
    assert "more than necessary" not in said


def test_the_failures_say_what_goes_offline() -> None:
    said = words(audit_plots.failures(audit(UNEVEN)))

    assert "3 offline" in said
    assert "broker 2" in said


def test_figures_of_many_topics_and_brokers_show_the_busiest() -> None:
    found = audit(random_placement(topics=60, brokers=50, partitions=4))

    assert len(audit_plots.shown_topics(found)) == audit_plots.MOST_TOPICS
    assert "broker (the 40 busiest of 50)" in words(audit_plots.loads(found))
    assert any("the worst 12 of 50" in said for said in words(audit_plots.failures(found)))


def test_equal_audits_give_equal_pages_and_names_are_shown_as_text() -> None:
    snapshot = placement({"<b>$x$</b>": [[1, 2], [2, 1], [2, 1]]})

    one, other = (audit_page(audit(snapshot)) for _ in range(2))

    assert one == other
    assert "<b>$x$" not in one
    assert "&lt;b&gt;$x$" in one
