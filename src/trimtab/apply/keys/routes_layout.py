"""Records of `.assign`, as far as a task reads them."""

from __future__ import annotations

import json

from trimtab.apply.keys.key_route import RoutePhase
from trimtab.apply.keys.stored_json import BrokenState


def prepared_set(text: bytes | None) -> int | None:
    """The set of a migration that is prepared and not done; None if there is none.

    >>> prepared_set(b'{"v":1,"part":5,"set":17,"from":3,"phase":"prepared"}')
    17
    >>> prepared_set(b'{"v":1,"part":5,"set":17,"phase":"done"}')
    """
    if text is None:
        return None
    try:
        node = json.loads(text)
        return int(node["set"]) if node["phase"] == RoutePhase.PREPARED else None
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenState(f"invalid route: {text[:80]!r}") from error
