"""What the page for other languages shows is what our own code reads."""

from __future__ import annotations

import json
import re

import pytest

from tests import ROOT
from trimtab.apply.consumers.assignments import answer_from, request_from
from trimtab.apply.consumers.kafka.assignor import PlannedAssignor
from trimtab.model.codec import weights_from
from trimtab.model.control_codec import control_from
from trimtab.model.json_reader import parse

PAGE = ROOT / "docs" / "how-to" / "other-languages.md"
EXAMPLES = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_read_without_a_warning(text: str) -> None:
    value, node = json.loads(text), parse(text, origin="example")
    read = {"weights": weights_from, "type": control_from, "members": request_from}.get(
        next((field for field in ("weights", "type", "members") if field in value), ""), answer_from
    )

    read(node)

    assert node.warnings == []


def test_every_message_that_a_consumer_must_send_is_shown() -> None:
    shown = {json.loads(text).get("type") for text in EXAMPLES}

    assert {"hello", "started", "stopped", "state", "rate"} <= shown


def test_the_name_of_the_assignor_is_the_one_that_members_use() -> None:
    assert f"(`{PlannedAssignor.name}` in Python)" in PAGE.read_text(encoding="utf-8")
