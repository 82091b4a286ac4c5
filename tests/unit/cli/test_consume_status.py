"""`trimtab consume-status` asks the service, and prints sentences and a table, or JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab.cli import consume_status as verb
from trimtab.cli.main import run
from trimtab.evaluate.keyed_status import (
    KeyedPartition,
    PartitionContents,
    ReadPosition,
    keyed_status,
)
from trimtab.services.consume_status import ConsumeStatusRequest

WORDS = ["consume-status", "--bootstrap-server", "broker:9092", "--group", "pay"]
WORDS += ["--topic", "orders"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ConsumeStatusRequest]:
    seen: list[ConsumeStatusRequest] = []

    def answer(_cluster: Any, request: ConsumeStatusRequest, **_: Any) -> Any:
        seen.append(request)
        partition = KeyedPartition(
            partition=0,
            contents=PartitionContents(owned=3),
            data=ReadPosition(0, 9, 9),
            handovers=ReadPosition(0, 0, None),
        )
        return keyed_status(request.group, request.topic, 1, [partition])

    monkeypatch.setattr(verb, "consume_status", answer)
    return seen


def test_the_options_reach_the_service(asked: list[ConsumeStatusRequest]) -> None:
    assert run([*WORDS, "--watch", "10s"]) == 0
    assert run([*WORDS, "--watch", "0"]) == 0
    assert asked == [
        ConsumeStatusRequest(group="pay", topic="orders", watch_s=10.0),
        ConsumeStatusRequest(group="pay", topic="orders", watch_s=0.0),
    ]


@pytest.mark.usefixtures("asked")
def test_sentences_come_first_and_json_has_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(WORDS) == 0
    assert capsys.readouterr().out.splitlines()[0] == "No key waits."
    assert run([*WORDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["summary"], found["total"]["owned"]) == (["No key waits."], 3)
