"""`trimtab evaluate sets`: what it asks for, and how it tells what was found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.services.keyed_topics_world import RECEIPTS, A, KeyedTopicsWorld, travelled
from trimtab.cli import evaluate_sets
from trimtab.cli.main import run
from trimtab.evaluate.key_history import SetAudit
from trimtab.services.evaluate_sets import SetAuditRequest, audit_topics

ASKED: list[SetAuditRequest] = []


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> KeyedTopicsWorld:
    """The topics that the command reads."""
    world = travelled()
    ASKED.clear()

    def evaluated(_cluster: Any, request: SetAuditRequest, **_: Any) -> SetAudit:
        ASKED.append(request)
        return audit_topics(world, request, receipts=RECEIPTS)

    monkeypatch.setattr(evaluate_sets, "evaluate_sets", evaluated)
    return world


WORDS = ["evaluate", "sets", "--topic", "orders", "--group", "pay"]
SERVER = ["--bootstrap-server", "nowhere:1"]


def test_a_clean_audit_ends_with_code_zero(
    topics: KeyedTopicsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS, *SERVER, "--at-rest", "--run", "r2", "--clock-skew", "2ms"]) == 0

    (asked,) = ASKED
    assert (asked.run, asked.source, asked.rules.at_rest) == ("r2", None, True)
    assert asked.rules.clock_skew_us == 2000
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 keys, 6 records of the source, 6 applied" in shown
    assert "3 sets, 3 adopted" in shown


def test_findings_end_with_code_one(
    topics: KeyedTopicsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.append("orders.in", 1, A, b"x", (("tt-seq", (5).to_bytes(8, "big")),))

    assert run([*WORDS, *SERVER, "--at-rest"]) == 1

    told = capsys.readouterr()
    assert "record 5 was not applied" in told.out
    assert "found 1 violations" in told.err


def test_while_things_move_keys_are_told_as_not_at_rest(
    topics: KeyedTopicsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.append("orders.in", 1, A, b"x", (("tt-seq", (5).to_bytes(8, "big")),))

    assert run([*WORDS, *SERVER]) == 0

    shown = capsys.readouterr().out
    assert "not at rest: 1 keys (a)" in shown
    assert "not judged: things move" in shown


def test_the_document_has_counts_and_findings(
    topics: KeyedTopicsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.append("orders.in", 1, A, b"x", (("tt-seq", (5).to_bytes(8, "big")),))

    assert run([*WORDS, *SERVER, "--at-rest", "--json"]) == 1

    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "sets"
    assert document["counts"] == {"missing": 1}
    assert document["findings"] == [
        {
            "rule": "V1",
            "kind": "missing",
            "key": "a",
            "partition": None,
            "at": 5,
            "run": None,
            "detail": "record 5 was not applied",
        }
    ]


def test_what_was_not_judged_is_said(
    topics: KeyedTopicsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.starts["orders.in"] = {1: 1}
    for log in topics.logs[RECEIPTS]:
        log[:] = [r._replace(value=_without_chain(r.value)) for r in log]

    assert run([*WORDS, *SERVER]) == 0

    told = " ".join(capsys.readouterr().err.split())
    assert "V2 was not judged" in told
    assert "beginning of the source or of the receipts is gone" in told


def _without_chain(value: bytes | None) -> bytes:
    return json.dumps(json.loads(value or b"") | {"chain": None}).encode()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["evaluate", "sets", "--group", "pay"], 2, "--topic"),
        (["evaluate", "sets", "--topic", "orders"], 2, "--group"),
        ([*WORDS, *SERVER, "--source", "elsewhere"], 2, "There is no topic elsewhere"),
        ([*WORDS, *SERVER, "--run", "r9"], 3, "no receipts of group pay in run r9"),
    ],
)
def test_what_cannot_be_audited_is_refused(
    topics: KeyedTopicsWorld,
    words: list[str],
    code: int,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(words) == code
    assert complaint in " ".join(capsys.readouterr().err.split())
