"""The sentence of the demo about hot keys."""

from tests.unit.plan.keys.windows import window
from trimtab.plan.keys.plan import plan_keys
from trimtab_lab.demo.steps import about_hot_keys


def test_the_demo_says_what_a_plan_for_keys_would_change_or_that_none_has_to_move() -> None:
    uneven = window({b"a": (900, 0), b"b": (300, 0)}, (1700, 1100))
    even = window({b"a": (900, 0)}, (1400, 1400))

    assert about_hot_keys(plan_keys(uneven, planner="trim", made_ts=1)) == (
        "Moving 1 hot key to other partitions would lower the busiest partition from 1.21 to 1.00 "
        "times the mean."
    )
    assert about_hot_keys(plan_keys(even, planner="trim", made_ts=1)) == (
        "No hot key has to move: the busiest partition has 1.00 times the mean."
    )
