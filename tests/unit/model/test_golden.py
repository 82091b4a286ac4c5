"""What is written to files and topics is what it was: the bytes, the ids, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.golden.samples import FOLDER, documents, is_judged, readme_plan, verdicts
from trimtab.model.plan_codec import plan_id

DOCUMENTS = documents()


def test_every_sample_has_its_golden_file() -> None:
    files = {f.name.split(".")[0] for f in FOLDER.glob("*.json")}

    assert files == set(DOCUMENTS)
    assert {f.name.split(".")[0] for f in FOLDER.glob("*.verdicts.json")} == {
        name for name in DOCUMENTS if is_judged(name)
    }


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_bytes_are_those_of_the_golden_file(name: str) -> None:
    assert DOCUMENTS[name] + "\n" == (FOLDER / f"{name}.json").read_text()


@pytest.mark.parametrize("name", sorted(filter(is_judged, DOCUMENTS)))
def test_every_change_of_a_field_is_judged_as_before_and_named_by_its_place(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text()
    golden = json.loads((FOLDER / f"{name}.verdicts.json").read_text())

    found = verdicts(name, text)

    assert {k: v for k, v in found.items() if golden.get(k) != v} == {}
    assert found.keys() == golden.keys()


@pytest.mark.parametrize(("planner", "wanted"), [("mwf", "5488aee306a0"), ("trim", "5f6e31330b6c")])
def test_the_ids_of_plans_do_not_change(planner: str, wanted: str) -> None:
    assert plan_id(readme_plan(planner)) == wanted
