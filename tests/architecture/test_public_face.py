"""`import trimtab` gives what it lists, and lists what it should."""

from __future__ import annotations

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
    for name, module in trimtab._WHEN_ASKED_FOR.items():
        assert name in trimtab.__all__
        assert getattr(trimtab, name) is getattr(import_module(module), name)
    assert set(trimtab.__all__) <= set(dir(trimtab))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        trimtab.nothing_of_ours  # noqa: B018 - asking for it is the test


@pytest.mark.parametrize(
    "name",
    [
        *("PLANNERS", "PackingOptions", "plan_consumers", "read_plan", "write_plan"),
        *("PARTITIONERS", "RoutingOptions", "partitioner_of"),
        *("RoutedProducer", "RoutedPartitioner", "WeightsReader", "LiveWeights"),
        *("write_routed", "with_partitions"),
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


def test_every_public_thing_says_what_it_is() -> None:
    silent = [
        name
        for name in trimtab.__all__
        if isinstance(getattr(trimtab, name), type) and not getattr(trimtab, name).__doc__
    ]

    assert silent == []


def test_the_version_is_that_of_the_package() -> None:
    assert trimtab.__version__ == version("trimtab")
