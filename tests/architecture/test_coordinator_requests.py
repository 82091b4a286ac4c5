"""No request to a group coordinator goes through librdkafka's admin client (decision 0041)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT

ASK_COORDINATORS = {
    "alter_consumer_group_offsets",
    "delete_consumer_groups",
    "describe_consumer_groups",
    "list_consumer_group_offsets",
    "list_consumer_groups",
}
"""Methods of confluent_kafka's AdminClient; kafka-python calls none of its own so."""


def forbidden(source: str) -> list[str]:
    """Uses of these methods, by name or through `getattr`."""
    return [
        used
        for node in ast.walk(ast.parse(source))
        if (used := getattr(node, "attr", None) or getattr(node, "value", None)) in ASK_COORDINATORS
    ]


def test_no_coordinator_is_asked_through_librdkafka() -> None:
    files = [
        *(ROOT / "src").rglob("*.py"),
        *(f for f in (ROOT / "tests").rglob("*.py") if f != Path(__file__)),
        *(ROOT / "benchmarks").rglob("*.py"),
    ]

    found = {str(file.relative_to(ROOT)): forbidden(file.read_text()) for file in files}

    assert len(files) > 300
    assert {file: used for file, used in found.items() if used} == {}


@pytest.mark.parametrize("method", sorted(ASK_COORDINATORS))
def test_a_use_would_be_noticed(method: str) -> None:
    from confluent_kafka.admin import AdminClient

    assert hasattr(AdminClient, method)
    assert forbidden(f"admin.{method}(['g'])") == [method]
    assert forbidden(f"getattr(admin, {method!r})(['g'])") == [method]
