"""The first signal asks for an orderly end, the second does not wait for it."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from trimtab.cli.signals import terminable, until_interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_what_the_first_asked_to_end(number: signal.Signals) -> None:
    def insist() -> None:
        with until_interrupted() as stop:
            os.kill(os.getpid(), number)
            assert stop.wait(10)
            os.kill(os.getpid(), number)
            threading.Event().wait(10)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        insist()

    assert signal.getsignal(number) is before


def test_another_thread_leaves_signals_alone() -> None:
    def work() -> object:
        with terminable():
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(work).result() is signal.getsignal(signal.SIGTERM)
