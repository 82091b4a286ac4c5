"""The JSON of an audit has the agreed shape."""

from __future__ import annotations

import pytest

from trimtab.audit.document import audit_to
from trimtab.audit.topology import AuditOptions, audit
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.codec import dumps
from trimtab.testing.placements import placement


def cluster() -> ClusterSnapshot:
    """A on 1 and 2, unevenly; B on 2, with a partition nobody leads; C apart."""
    return placement({"A": [[1, 2], [2, 1], [2, 1]], "B": [[], [2]], "C": [[2], [3]]})


def test_the_first_keys_are_those_that_were_agreed_with_just_their_fields() -> None:
    found = audit_to(audit(cluster()))

    agreed = {
        "groups": [
            {"brokers": [1, 2], "topics": ["A"]},
            {"brokers": [2], "topics": ["B"]},
            {"brokers": [2, 3], "topics": ["C"]},
        ],
        "pairs": [
            {"groups": [0, 1], "brokers": [2]},
            {"groups": [0, 2], "brokers": [2]},
            {"groups": [1, 2], "brokers": [2]},
        ],
        "overlaps_by_broker": {"2": [0, 1, 2]},
        "uneven": [
            {
                "topic": "A",
                "counts": {"1": 1, "2": 2},
                "spread": 1,
                "peak_to_mean": 1.3333333333333333,
                "level": "note",
            }
        ],
        "offline_topics": [],
        "offline_partitions": [{"topic": "B", "partition": 0}],
        "leaders_per_broker": {"1": 1, "2": 4, "3": 1},
    }
    assert list(found)[:8] == [*agreed, "faults"]
    assert {key: found[key] for key in agreed} == agreed
    assert (found["v"], found["kind"]) == (1, "audit")


def test_a_failure_lists_the_leaders_that_change_and_what_goes_offline_by_it() -> None:
    faults = {tuple(f["dead"]): f for f in audit_to(audit(cluster()))["faults"]}

    assert list(faults[1,])[:3] == ["dead", "leaders", "offline_partitions"]
    assert (faults[1,]["leaders"], faults[1,]["offline_partitions"]) == ({"A": {"0": 2}}, [])
    assert faults[2,]["leaders"] == {"A": {"1": 1, "2": 1}, "B": {"1": -1}, "C": {"0": -1}}
    assert faults[2,]["offline_partitions"] == [
        {"topic": "B", "partition": 1},
        {"topic": "C", "partition": 0},
    ]
    assert faults[2,]["offline_topics"] == ["B"]


def test_the_pairs_listed_are_limited_and_all_are_counted() -> None:
    found = audit_to(audit(cluster(), options=AuditOptions(pairs=1)))

    assert (len(found["pairs"]), found["pairs_total"]) == (1, 3)
    assert found["pairs"] == [{"groups": [0, 1], "brokers": [2]}]
    assert found["pair_rates"] == pytest.approx([5 / 3])
    assert len(audit_to(audit(cluster(), options=AuditOptions(pairs=None)))["pairs"]) == 3


def test_only_the_worst_failures_are_listed_where_that_is_asked_for() -> None:
    found = audit_to(audit(cluster(), options=AuditOptions(up_to=2)), worst=2)

    assert len(found["faults"]) == 2
    assert found["fault_scan"] == {"scanned": 6, "of": 6, "seed": 0}


def test_an_empty_cluster_is_a_document_like_any_other() -> None:
    text = dumps(audit_to(audit(placement({}))))

    assert text.startswith('{"groups": [], "pairs": [], "overlaps_by_broker": {}, "uneven": []')
