"""The reference page of the policies that `trimtab simulate keys` compares."""

from __future__ import annotations

from trimtab.cli.reference_topics import table_row
from trimtab.simulate.keys.registry import key_policies


def key_policies_page() -> str:
    """What each policy does, what it gives up, and what was chosen where its source is open."""
    columns = ("policy", "what it does", "gives up", "remembers", "chosen here")
    parts = [
        "# Policies for hot keys\n",
        "Compared by `trimtab simulate keys` on the same records. All of them divide keys that are "
        "not hot by Kafka's own hash wherever their source only asks for some hash, so that the "
        "comparison shows how hot keys are treated.\n",
        table_row(*columns),
        table_row(*("---" for _ in columns)),
    ]
    parts += [
        table_row(f"`{kind.name}`", kind.what, kind.gives_up, kind.memory, kind.chosen or "–")
        for kind in key_policies().values()
    ]
    return "\n".join(parts)
