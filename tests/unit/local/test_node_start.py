"""Why a node did not start."""

from __future__ import annotations

import pytest

from trimtab.local.node_start import last_error


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "INFO up\nERROR going down (kafka)\nX: outer\n\tat f\nCaused by: A: bind failed\n"
            "\tat g\nCaused by: B: port taken\n\tat h\nINFO bye\n",
            "A: bind failed, caused by B: port taken",
        ),
        ("ERROR old\nERROR new (k)\nX: why\n\tat f\nINFO bye\n", "ERROR new (k) X: why"),
        ("INFO one\nINFO two\n", "INFO two"),
        ("", "none"),
    ],
)
def test_the_last_error_of_a_log_are_its_last_error(log, words):
    assert last_error(log) == words
