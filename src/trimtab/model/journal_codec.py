"""Journal entry ⇄ versioned JSON: the records of `trimtab.plans` under the key `<id>/state`."""

from __future__ import annotations

from trimtab.model.codec import VERSION, Json
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.json_reader import Node


def journal_to(entry: JournalEntry) -> Json:
    """A journal entry; `why` is left out if there is no reason."""
    return {
        "v": VERSION,
        "plan": entry.plan,
        "state": str(entry.state),
        "step": entry.step,
        "of": entry.of,
        "found": {where: dict(settings) for where, settings in entry.found.items()},
        "ts": entry.ts,
        **({"why": entry.why} if entry.why else {}),
    }


def journal_from(node: Node) -> JournalEntry:
    """Reads a journal entry."""
    node.version()
    state, why = node.need("state"), node.get("why")
    if state.value not in list(PlanState):
        state.fail(f"should be one of {', '.join(PlanState)}, is {state.value}")
    step, of = node.need("step").integer(least=0), node.need("of").integer(least=0)
    if step > of:
        node.need("step").fail(f"is step {step} of {of}")
    return JournalEntry(
        plan=node.need("plan").text(),
        state=PlanState(state.value),
        step=step,
        of=of,
        ts=node.need("ts").integer(least=0),
        found={
            where: {
                name: None if value.value is None else value.text()
                for name, value in settings.items()
            }
            for where, settings in node.need("found").items()
        },
        why="" if why is None else why.text(),
    )
