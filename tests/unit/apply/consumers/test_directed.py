from dataclasses import replace
from typing import Any

from trimtab.apply.consumers.directed import (
    REMEMBERED,
    ConsumerProcess,
    Drop,
    SendReport,
    Take,
    execute,
    without,
    without_old_queries,
)
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    Hello,
    ReadingStarted,
    ReadingStopped,
    Start,
    StateQuery,
    StateReport,
    Stop,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FRESH = ConsumerProcess(consumer=3, incarnation="x")
START = Start(epoch=7, seq=1, partitions=(P0, P1))
STOP = Stop(epoch=7, seq=2, partitions=(P1,))
STARTED = ReadingStarted(consumer=3, incarnation="x", epoch=7, seq=1, partitions=(P0, P1))
STOPPED = ReadingStopped(
    consumer=3, incarnation="x", epoch=7, seq=2, partitions=(P1,), committed={P1: 40}
)


def after(*commands, committed=None):
    """The state and the actions of the last command."""
    state = FRESH
    actions: tuple[Any, ...] = ()
    for command in commands:
        state, actions = execute(state, command, committed or {})
    return state, actions


def test_a_consumer_begins_with_nothing_and_says_so():
    assert FRESH.hello == Hello(consumer=3, incarnation="x", partitions=())
    assert FRESH.owned == frozenset()


def test_a_start_is_answered_after_the_partitions_are_taken():
    state, actions = after(START)
    assert state.owned == {P0, P1}
    assert actions == (Take((P0, P1)), SendReport(STARTED))


def test_a_stop_is_answered_with_the_committed_offset_after_the_partition_is_dropped():
    state, actions = after(START, STOP, committed={P0: 9, P1: 40})
    assert state.owned == {P0}
    assert actions == (Drop((P1,)), SendReport(STOPPED))


def test_a_stop_of_a_partition_never_committed_says_so():
    _, (_, said) = after(START, STOP)
    assert said == SendReport(replace(STOPPED, committed={P1: None}))


def test_a_command_of_an_older_epoch_is_ignored():
    before, _ = after(START)
    state, actions = execute(before, Stop(epoch=6, seq=99, partitions=(P0,)), {})
    assert (state, actions) == (before, ())
    assert execute(before, StateQuery(epoch=6, query_id="q"), {}) == (before, ())


def test_a_repeated_command_is_answered_word_for_word_and_not_obeyed_again():
    #  start p0,p1 · stop p1 (at 40) · start p1 · stop p1 repeated, while p1 stands at 55
    back = Start(epoch=7, seq=3, partitions=(P1,))
    before, _ = after(START, STOP, back, committed={P1: 40})
    state, actions = execute(before, STOP, {P1: 55})
    assert state == before
    assert actions == (SendReport(STOPPED),)


def test_the_same_number_in_a_newer_epoch_is_another_command():
    state, actions = after(START, Stop(epoch=8, seq=1, partitions=(P0,)), committed={P0: 5})
    assert state.owned == {P1}
    assert actions[0] == Drop((P0,))


def test_a_newer_epoch_leaves_the_partitions_where_they_are():
    state, actions = after(START, StateQuery(epoch=8, query_id="q"))
    assert (state.epoch, state.owned) == (8, {P0, P1})
    assert actions == (
        SendReport(StateReport(consumer=3, incarnation="x", query_id="q", partitions=(P0, P1))),
    )


def test_a_start_of_what_is_owned_and_a_stop_of_what_is_not_are_harmless():
    again = Start(epoch=7, seq=5, partitions=(P0,))
    state, actions = after(START, again)
    assert (state.owned, actions[:-1]) == ({P0, P1}, ())
    assert isinstance(actions[-1].report, ReadingStarted)

    state, actions = after(Stop(epoch=7, seq=5, partitions=(P0,)))
    assert (state.owned, actions[:-1]) == (frozenset(), ())
    assert actions[-1].report.committed == {P0: None}


def test_of_a_command_only_what_changes_is_done():
    more = Start(epoch=7, seq=5, partitions=(P0, P1, P1))
    _, actions = after(Start(epoch=7, seq=4, partitions=(P0,)), more)
    assert actions[0] == Take((P1,))


def test_only_the_last_query_is_worth_an_answer():
    first, last = (StateQuery(epoch=7, query_id=name) for name in "ab")
    assert without_old_queries([first, START, last, STOP]) == (START, last, STOP)


def test_a_late_query_of_an_older_epoch_does_not_hide_the_current_one():
    current, late = StateQuery(epoch=8, query_id="a"), StateQuery(epoch=7, query_id="b")
    assert without_old_queries([current, late]) == (current,)


def test_answers_do_not_pile_up():
    state = FRESH
    for seq in range(REMEMBERED + 10):
        state, _ = execute(state, Start(epoch=1, seq=seq, partitions=(P0,)), {})
    assert len(state.answers) == REMEMBERED
    assert max(state.answers) == REMEMBERED + 9


def test_a_vanished_partition_is_no_longer_owned():
    state, _ = after(START)
    assert without(state, frozenset({P0})).owned == {P1}
