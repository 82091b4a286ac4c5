"""Work that ends after a given time."""

from __future__ import annotations

import threading

from trimtab.services.stopping import stopped_after


def test_the_event_is_set_after_the_time_and_not_before_its_end() -> None:
    stop, never = threading.Event(), threading.Event()

    with stopped_after(stop, 0.01), stopped_after(never, None):
        assert stop.wait(10)
    with stopped_after(never, 0.05):
        pass

    assert not never.wait(0.1)
