"""`import trimtab` gives what it lists, and lists what it should."""

from __future__ import annotations

from importlib.metadata import version

import trimtab
from trimtab import errors
from trimtab.errors import TrimtabError


def test_every_listed_name_is_there() -> None:
    missing = [name for name in trimtab.__all__ if not hasattr(trimtab, name)]

    assert missing == []
    assert len(set(trimtab.__all__)) == len(trimtab.__all__)


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
