"""The pieces of a page in docs/papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trimtab_lab.papers.part import Part, Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPage:
    """Introduction, sections, deviations; a section has a title and a function from its part."""

    introduction: Callable[[Parts], str]
    sections: Mapping[str, tuple[str, Callable[[Part], str]]]
    deviations: str
