"""`import trimtab` gives what it lists, and lists what it should."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version

import pytest

import trimtab
from trimtab import errors
from trimtab.errors import TrimtabError


def test_every_listed_name_is_there() -> None:
    missing = [name for name in trimtab.__all__ if not hasattr(trimtab, name)]

    assert missing == []
    assert len(set(trimtab.__all__)) == len(trimtab.__all__)


def test_what_is_loaded_when_asked_for_is_listed_and_stands_where_it_says() -> None:
    for name, module in trimtab._LAZY.items():
        assert name in trimtab.__all__
        assert getattr(trimtab, name) is getattr(import_module(module), name)
    assert set(trimtab.__all__) <= set(dir(trimtab))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        trimtab.nothing_of_ours  # noqa: B018 - asking for it is the test


@pytest.mark.parametrize(
    "name",
    [
        *("PLANNERS", "PackingContext", "plan_consumers", "read_plan", "write_plan"),
        *("PARTITIONERS", "RoutingOptions", "partitioner_of"),
        *("RoutedProducer", "RoutedPartitioner", "WeightsReader", "LiveWeights"),
        *("write_routed", "with_partitions"),
        *("MemberName", "OwnTopics", "OutstandingBytes", "WaitingBatches", "for_kafka_python"),
        *(
            "DirectedConsumer",
            "GroupConsumer",
            "ConsumerConfig",
            "Handler",
            "Record",
            "ClientProperties",
        ),
    ],
)
def test_what_programs_need_is_public(name: str) -> None:
    assert name in trimtab.__all__


def test_every_error_is_public() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, TrimtabError)
    }

    assert ours <= set(trimtab.__all__)


UNNAMED = {
    "KafkaAdmin": "our own narrow port on a cluster, which changes as we need it",
    "OwnTopic": "how our topics are made is ours; programs need their names only",
    "UnacknowledgedBytes": "what an Outstanding keeps for itself",
    "Wire": "not the type of a field, but how it is written as JSON",
}
"""Types of public signatures that are not public, and why."""


@cache
def types_named_in(module: str) -> dict[str, str]:
    """The types of ours that a module can name in its annotations, and where they stand."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom) and (source := node.module or "").startswith("trimtab"):
            found |= {alias.asname or alias.name: source for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found[node.name] = module
    return {
        name: place
        for name, place in found.items()
        if isinstance(getattr(import_module(place), name, None), type)
    }


def signatures(value: object) -> Iterator[object]:
    """What carries the annotations of a public thing: itself, its methods and properties."""
    yield value
    for name, inner in vars(value).items() if isinstance(value, type) else ():
        if not name.startswith("_") or name == "__init__":
            yield getattr(inner, "fget", None) or getattr(inner, "__func__", inner)


def test_the_types_of_public_signatures_are_public() -> None:
    hidden = {
        f"{types_named_in(value.__module__)[word]}.{word} of {name}"
        for name in trimtab.__all__
        if inspect.isfunction(value := getattr(trimtab, name)) or isinstance(value, type)
        for one in signatures(value)
        for text in (getattr(one, "__annotations__", None) or {}).values()
        for word in re.findall(r"[A-Za-z]\w*", str(text))
        if word in types_named_in(value.__module__) and word not in {*trimtab.__all__, *UNNAMED}
    }

    assert hidden == set()


def test_every_public_thing_says_what_it_is() -> None:
    silent = [
        name
        for name in trimtab.__all__
        if isinstance(getattr(trimtab, name), type) and not getattr(trimtab, name).__doc__
    ]

    assert silent == []


def test_the_version_is_that_of_the_package() -> None:
    assert trimtab.__version__ == version("trimtab")
