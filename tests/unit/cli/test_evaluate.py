"""`trimtab evaluate`: what it refuses before it starts anything, and how it tells what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab.cli import evaluate
from trimtab.cli.main import run
from trimtab.errors import Findings
from trimtab.evaluate.order import Violation, ViolationKind
from trimtab.evaluate.verdict import BlockingTimes, Latency, OrderAuditResult, Outcome, outcome_to
from trimtab.report.verdict import outcome_view
from trimtab.services.evaluate import OrderAudit


def audited(**counts: int) -> OrderAudit:
    found = OrderAuditResult(
        run="r",
        group="g",
        receipts=10,
        records=9,
        expected=9,
        rejects=0,
        unnumbered=0,
        counts={ViolationKind(kind): n for kind, n in counts.items()},
        first=tuple(
            Violation(
                kind=ViolationKind(kind),
                topic="t",
                partition=0,
                key=b"[k]",
                at=7,
                detail="so it is",
            )
            for kind in counts
        ),
    )
    return OrderAudit(audited=found, table="the table")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["order"], "--group, --seq-header or --seq-field is required"),
        (["order", "--topic", "t"], "is required"),
        (["order", "--seq-header", "n"], "audit the records of a topic"),
        (["order", "--topic", "t", "--seq-field", "n", "--group", "g"], "records of a topic"),
        (["order", "--topic", "t", "--seq-field", "n", "--seq-header", "n"], "not both"),
        (["order", "--group", "g", "--acknowledged", __file__], "for one topic"),
        (["order", "--group", "g", "--since", "5m", "--from", "1"], "not both"),
        (["outcome", "--group", "g", "--from", "2", "--to", "1"], "ends before it begins"),
        (["outcome"], "--group"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", *words]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_findings_are_told_and_end_with_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Findings, match="found 2 violations") as raised:
        evaluate.show_audit(audited(lost=2, repeat=5), no_repeats=False)

    assert raised.value.exit_code == 1
    shown = capsys.readouterr().out
    assert "allowed: at least once" in shown
    assert "[k]" in shown


def test_repeats_alone_are_no_finding_unless_none_is_allowed() -> None:
    evaluate.show_audit(audited(repeat=5), no_repeats=False)

    with pytest.raises(Findings):
        evaluate.show_audit(audited(repeat=5), no_repeats=True)


def test_programs_get_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate.show_audit(audited(repeat=5), no_repeats=False, as_json=True)

    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["findings"], document["counts"]["repeat"]) == ("order", 0, 5)


def test_an_outcome_is_shown_and_written_with_what_it_does_not_know() -> None:
    from rich.console import Console

    latency = Latency(events=1, p50_ms=1, p90_ms=2, p99_ms=3, p999_ms=4, max_ms=5, within_sla=0.999)
    outcome = Outcome(
        run="r",
        group="g",
        from_ts=0,
        to_ts=120_000_000,
        sla_s=5,
        latency=latency,
        repeats=0,
        rejects=0,
        replicas_from="receipts",
        replica_minutes=3.0,
        busiest_share=None,
        busiest_to_mean=None,
        moves=BlockingTimes(moves=0),
        handovers=None,
    )
    console = Console(record=True, width=120)

    console.print(outcome_view(outcome))

    text = console.export_text()
    assert "99.900%" in text
    assert "1.50 on average, counted from receipts" in text
    assert "unknown" in text
    document = outcome_to(outcome)
    assert (document["p90_ms"], document["mean_replicas"], document["handovers"]) == (2, 1.5, None)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["order", "--group", "g", "--receipts", "missing"], 2, "missing: there is no such file"),
        (["outcome", "--group", "g", "--receipts", "missing"], 2, "missing: there is no such file"),
        (["order", "--group", "g", "--topic", "t", "--acknowledged", "missing"], 2, "no such file"),
        (["outcome", "--group", "g"], 2, "No cluster was given"),
        (["order", "--group", "g", "--from", "9" * 20], 2, "after the year 9999"),
        (["order", "--group", "g", "--from", "9" * 5000], 2, "after the year 9999"),
    ],
)
def test_what_is_not_there_is_said_before_spark_is_started(
    words: list[str],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trimtab.cli.spark.spark_session", None)
    assert run(["evaluate", *words]) == code
    assert told in capsys.readouterr().err
