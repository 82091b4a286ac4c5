"""Plans for keys: figures, bound, parameters, id and snapshot."""

from dataclasses import replace

import pytest

from tests.unit.plan.keys.windows import window
from trimtab.errors import PlanningError, UnknownPlanner
from trimtab.measure.counters import Coverage
from trimtab.model.codec import dumps
from trimtab.model.json_reader import parse
from trimtab.model.plan_codec import plan_from, plan_id, plan_to
from trimtab.plan.keys.bounds import balancing_error, imbalance, least_peak
from trimtab.plan.keys.plan import plan_keys
from trimtab.plan.keys.planner import BalancedLoad, InitialPlace, KeyContext
from trimtab.plan.keys.smalops import SMALOPS

KEYS = {b"a": (30, 0), b"b": (20, 0), b"c": (10, 0), b"\xff": (12, 1)}
COUNTS = window(KEYS, (90, 20, 10))
AT_HOME = SMALOPS.with_options(initial=InitialPlace.HOME)


def test_the_figures_of_a_plan_are_those_of_its_loads():
    plan = plan_keys(COUNTS, planner=AT_HOME, made_ts=7, topic="orders")

    assert plan.scope.topics == ("orders",)
    assert plan.before.imbalance == pytest.approx(90 / 40)
    assert plan.before.e_lb == pytest.approx(float(balancing_error([60, 12, 0])))
    assert [(m.key, m.source, m.target) for m in plan.moves] == [(b"c", 0, 1), (b"b", 0, 2)]
    assert plan.after.e_lb == pytest.approx(float(balancing_error([30, 22, 20])))
    assert plan.after.imbalance == pytest.approx(60 / 40)
    assert plan.bound == pytest.approx(40 / 40)
    assert plan.gap == pytest.approx(0.5)
    assert (plan.cost.moves, plan.cost.count) == (2, 30)
    assert [(u.key, u.source, u.target) for u in plan.inverse] == [(b"b", 2, 0), (b"c", 1, 0)]


def test_the_error_is_that_of_the_load_which_is_balanced():
    total = AT_HOME.with_options(load=BalancedLoad.TOTAL)

    plan = plan_keys(COUNTS, planner=total, made_ts=7)

    assert plan.before.e_lb == pytest.approx(float(balancing_error([90, 20, 10])))
    assert plan.params["load"] == "total"


def test_parameters_tell_what_the_plan_was_made_with():
    planner = SMALOPS.with_options(threshold=Coverage(0.25), max_moves=1)

    plan = plan_keys(COUNTS, planner=planner, made_ts=7, context=KeyContext(plan_number=4))

    assert plan.params == {
        "partitions": 3,
        "window_s": 10,
        "threshold": 30,
        "load": "hot",
        "plan_number": 4,
        "max_moves": 1,
        "threshold_form": "coverage:0.25",
    }
    assert "plan_number" not in plan_keys(COUNTS, planner="trim", made_ts=7).params


def test_keys_that_could_not_move_are_counted():
    plan = plan_keys(
        COUNTS, planner="smalops", made_ts=7, context=KeyContext(busy=frozenset({b"a"}))
    )

    assert plan.params["skipped"] == 1


def test_a_plan_is_read_as_it_was_written_and_its_id_does_not_depend_on_the_time():
    plan = plan_keys(COUNTS, planner=AT_HOME, made_ts=7)

    assert plan_from(parse(dumps(plan_to(plan)), origin="plan")) == plan
    assert plan_id(plan_keys(COUNTS, planner=AT_HOME, made_ts=8)) == plan_id(plan)


def test_the_snapshot_rests_on_the_partitions_and_the_places_of_moved_keys_only():
    def snapshot(counts):
        return plan_keys(counts, planner=AT_HOME, made_ts=7).snapshot

    more_records = replace(
        COUNTS,
        keys=tuple(replace(k, count=2 * k.count) for k in COUNTS.keys),
        partition_totals=(180, 40, 20),
    )
    wider = window(KEYS, (90, 20, 10, 40))

    assert snapshot(COUNTS) == snapshot(more_records)
    assert snapshot(COUNTS) != snapshot(wider)


def test_a_topic_with_one_partition_and_an_unknown_planner_are_refused():
    with pytest.raises(PlanningError, match="only one partition"):
        plan_keys(window({b"a": (30, 0)}, (60,)), planner="trim", made_ts=7)
    with pytest.raises(UnknownPlanner, match='no planner "smalop" for keys') as raised:
        plan_keys(COUNTS, planner="smalop", made_ts=7)
    assert raised.value.hint == 'Did you mean "smalops"?'


def test_an_empty_window_has_an_empty_plan():
    plan = plan_keys(window({}, (0, 0)), planner="trim", made_ts=7)

    assert (plan.moves, plan.before.imbalance, plan.bound, plan.gap) == ((), 1, 1, 0)


def test_the_bound_is_the_mean_the_other_keys_or_the_largest_key():
    keys = COUNTS.keys
    assert least_peak((90, 20, 10), keys) == 40  # the mean
    assert least_peak((200, 20, 10), keys) == 140  # other keys of partition 0
    giant = window({b"a": (80, 0)}, (90, 20, 10))
    assert least_peak((90, 20, 10), giant.keys) == 90  # with the fewest others beside it
    assert imbalance((90, 20, 10)) == 90 / 40
