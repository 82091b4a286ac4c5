"""Routes as a task reads them."""

from __future__ import annotations

import pytest

from trimtab.apply.keys.routes_layout import prepared_set
from trimtab.apply.keys.stored_json import BrokenState


def test_only_a_prepared_migration_counts() -> None:
    assert prepared_set(b'{"v":1,"part":5,"set":17,"from":3,"phase":"prepared"}') == 17
    assert prepared_set(b'{"v":1,"part":5,"set":17,"phase":"done"}') is None
    assert prepared_set(None) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"phase":"prepared"}'])
def test_what_is_no_route_is_an_error(text: bytes) -> None:
    with pytest.raises(BrokenState, match="invalid route"):
        prepared_set(text)
