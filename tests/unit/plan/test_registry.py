from dataclasses import fields, replace

import pytest

from trimtab.errors import ConfigError, UnknownPlanner
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.baselines import BASELINES
from trimtab.plan.consumers.ilp import EXACT
from trimtab.plan.consumers.latency_autoscaler import LATENCY
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT
from trimtab.plan.consumers.planner import MoveBudget, PackingContext
from trimtab.plan.consumers.trim import TRIM, TrimOptions
from trimtab.plan.keys.planner import KeyContext
from trimtab.plan.registry import (
    PLANNERS,
    configured,
    configured_keys,
    option_text,
    option_texts,
    planner_of,
)


def test_every_registered_planner_is_found_by_its_name():
    for name, planner in PLANNERS[Layer.CONSUMERS].items():
        assert planner_of(Layer.CONSUMERS, name) is planner
        assert planner.name == name


def test_what_a_planner_reads_are_its_own_options_and_facts_of_the_context():
    facts = {fact.name for fact in fields(PackingContext)}
    for planner in PLANNERS[Layer.CONSUMERS].values():
        assert planner.uses <= facts
        assert planner.reads == planner.uses | {own.name for own in fields(planner.options)}
        assert not planner.uses & set(planner.option_names)


def test_a_planner_that_uses_a_fact_that_does_not_exist_cannot_be_made():
    with pytest.raises(ValueError, match="odd uses unknown facts: weather"):
        replace(PLANNERS[Layer.CONSUMERS]["mwf"], name="odd", uses=frozenset({"weather"}))


def test_an_option_of_several_planners_means_the_same_everywhere():
    meanings: dict[str, set[tuple[str, object]]] = {}
    for planner in PLANNERS[Layer.CONSUMERS].values():
        for name, text in option_texts(planner).items():
            meanings.setdefault(name, set()).add((text, getattr(planner.options, name)))
            assert option_text(name) == text
    assert {name for name, found in meanings.items() if len(found) > 1} == set()
    assert len(meanings) == 8


def test_an_option_of_both_planners_for_keys_means_the_same():
    meanings: dict[str, set[tuple[str, object]]] = {}
    for planner in PLANNERS[Layer.KEYS].values():
        for name, text in option_texts(planner).items():
            meanings.setdefault(name, set()).add((text, getattr(planner.options, name)))
            assert option_text(name, Layer.KEYS) == text
        assert planner.uses <= {fact.name for fact in fields(KeyContext)}
    assert {name for name, found in meanings.items() if len(found) > 1} == set()


def test_options_for_keys_go_to_the_planners_that_read_them():
    both = list(PLANNERS[Layer.KEYS].values())

    smalops, trim = configured_keys(both, {"max_moves": 3, "noise": 7, "plan_number": 2})

    assert smalops.changed_options == {"max_moves": 3}
    assert trim.changed_options == {"max_moves": 3, "noise": 7}
    with pytest.raises(ConfigError, match=r"^noise is not supported by smalops\.$") as raised:
        configured_keys([smalops], {"noise": 7})
    assert raised.value.hint == "It is for trim."


def test_each_layer_has_its_own_planners():
    assert list(PLANNERS) == [Layer.CONSUMERS, Layer.KEYS]
    assert len(PLANNERS) == 2
    assert set(PLANNERS[Layer.KEYS]) == {"smalops", "trim"}


def test_a_planner_is_told_its_options_by_name():
    trim = planner_of(Layer.CONSUMERS, "trim")
    told = trim.with_options(max_moves=3, slack=0.5)

    assert told.options == TrimOptions(max_moves=3, slack=0.5)
    assert told.options.budget == MoveBudget(max_moves=3)
    assert told.changed_options == {"max_moves": 3, "slack": 0.5}
    assert (trim.options, trim.changed_options) == (TrimOptions(), {})
    assert told.with_options(max_moves=None).changed_options == {"slack": 0.5}


@pytest.mark.parametrize(
    ("planner", "option", "hint"),
    [
        ("mwf", "slack", "It has no options."),
        ("exact", "seed", "Its options: time_limit_s."),
        ("trim", "max_move", "Its options: slack, max_moves, max_moved_load, time_limit_s."),
    ],
)
def test_an_option_that_a_planner_does_not_have_is_refused_by_name(planner, option, hint):
    with pytest.raises(ConfigError, match=f"Planner {planner} has no option {option}.") as raised:
        planner_of(Layer.CONSUMERS, planner).with_options(**{option: 1})
    assert raised.value.hint == hint


def test_in_a_comparison_each_planner_gets_what_it_reads():
    chosen = [planner_of(Layer.CONSUMERS, name) for name in ("trim", "exact", "kafka-sticky")]

    (trim, exact, sticky), context = configured(
        chosen, {"time_limit_s": 5.0, "slack": 0.1, "members": 3, "sla_s": 2.0}
    )

    assert trim.changed_options == {"time_limit_s": 5.0, "slack": 0.1}
    assert exact.changed_options == {"time_limit_s": 5.0}
    assert sticky.changed_options == {}
    assert context == PackingContext(members=3, sla_s=2.0)


def test_what_none_of_the_chosen_planners_reads_is_refused_unless_it_is_a_shared_condition():
    chosen = [planner_of(Layer.CONSUMERS, name) for name in ("mwf", "bfd")]

    with pytest.raises(ConfigError, match=r"^slack is not supported by mwf, bfd\.$") as raised:
        configured(chosen, {"slack": 0.1})
    assert raised.value.hint == "It is for trim."
    with pytest.raises(ConfigError, match=r"^seed is not supported by mwf, bfd\.$") as raised:
        configured(chosen, {"seed": 3})
    assert raised.value.hint == "It is for bf, ff, nf, trim, wf."
    with pytest.raises(ConfigError, match=r"^weather is not supported") as raised:
        configured(chosen, {"weather": 3})
    assert raised.value.hint is None
    same, context = configured(chosen, {"seed": 3, "slack": 0.1}, optional={"seed", "slack"})
    assert (same, context.seed) == (chosen, 3)


def test_no_planner_hides_another_of_the_same_name():
    families = (ANY_FIT, MODIFIED_ANY_FIT, LATENCY, EXACT, TRIM, BASELINES)
    assert len(PLANNERS[Layer.CONSUMERS]) == sum(map(len, families))


def test_an_unknown_planner_is_answered_with_those_there_are_and_the_closest():
    with pytest.raises(UnknownPlanner, match=r"bf, bfd, .*mwf, mwfp") as raised:
        planner_of(Layer.CONSUMERS, "MWFF")
    assert raised.value.exit_code == 4
    assert raised.value.hint == 'Did you mean "mwf"?'


def test_a_name_close_to_none_gets_no_guess():
    with pytest.raises(UnknownPlanner) as raised:
        planner_of(Layer.CONSUMERS, "quantum")
    assert raised.value.hint is None
