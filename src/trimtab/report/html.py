"""What every HTML page shares: the packaged templates, and a headline figure."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Template


class Figure(NamedTuple):
    """A headline number, what it is, and a value to compare it with."""

    value: str
    name: str
    beside: str = ""


@cache
def template(name: str) -> Template:
    """A template that is packaged with Trimtab."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("trimtab.report")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template(name)
