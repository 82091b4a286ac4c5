"""Makes docs/papers: a page per experiment from its kept results, failed comparisons included."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab_lab.papers.paper_page import PaperPage
from trimtab_lab.papers.part import Parts
from trimtab_lab.papers.plots import drawings
from trimtab_lab.papers.registry import EXPERIMENTS, loaded


def page(experiment: str, parts: Parts, remarks: str = "") -> str:
    """The text of a page, with a list of parts that were not run, and `remarks` on the runs."""
    template: PaperPage = loaded(EXPERIMENTS[experiment].page)
    made = f"<!-- Made by `trimtab experiment {experiment}`; changes here are lost. -->\n"
    body = [made, template.introduction(parts)]
    for name, (_, section) in template.sections.items():
        if name in parts:
            body += [section(parts[name]).rstrip() + "\n", *_pictures(experiment, name, parts)]
    if missing := [title for name, (title, _) in template.sections.items() if name not in parts]:
        body.append("## Not run yet\n\n" + "\n".join(f"- {title}" for title in missing) + "\n")
    if remarks:
        body.append(f"## Remarks on these runs\n\n{remarks.strip()}\n")
    body.append(template.deviations)
    return "\n".join(body).rstrip() + "\n"


def _pictures(experiment: str, part: str, parts: Parts) -> Iterable[str]:
    for name in drawings(experiment, {part: parts[part]}):
        yield f"![{name.replace('-', ' ')}](plots/{name}.svg)\n"
