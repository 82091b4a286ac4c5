"""Journal entry ⇄ versioned JSON: the records of `trimtab.plans` under the key `<id>/state`."""

from __future__ import annotations

from trimtab.model import wire
from trimtab.model.codec import VERSION, Json
from trimtab.model.journal import JournalEntry
from trimtab.model.json_reader import Node


def journal_to(entry: JournalEntry) -> Json:
    """A journal entry; `why` is left out if there is no reason."""
    return {"v": VERSION, **wire.write(entry)}


def journal_from(node: Node) -> JournalEntry:
    """Reads a journal entry."""
    node.version()
    entry = wire.read(JournalEntry, node)
    if entry.step > entry.of:
        node.need("step").fail(f"is step {entry.step} of {entry.of}")
    return entry
