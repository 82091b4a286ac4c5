"""Closed forms against values known otherwise, and against each other."""

from __future__ import annotations

import math

import pytest

from trimtab.simulate.closed_forms import (
    FormKind,
    idle_queue_many,
    m_d_1,
    m_d_n,
    m_m_1,
    m_m_n,
    round_robin,
    shortest_of_few,
    shortest_of_many,
    split,
)

BUSY = (0.05, 0.3, 0.5, 0.7, 0.9, 0.97)


@pytest.mark.parametrize("busy", BUSY)
def test_forms_for_many_brokers_are_those_for_one_when_there_is_one(busy):
    alone = m_m_1(busy).mean_wait

    assert m_m_n(1, busy).mean_wait == pytest.approx(alone)
    assert round_robin(1, busy).mean_wait == pytest.approx(alone, rel=1e-9)
    assert shortest_of_many(1, busy).mean_wait == alone
    constant = m_d_n(1, busy)
    assert constant is not None
    assert constant.mean_wait == pytest.approx(m_d_1(busy).mean_wait, rel=1e-9)


@pytest.mark.parametrize("busy", BUSY)
def test_two_brokers_with_one_queue(busy):
    assert m_m_n(2, busy).mean_wait == pytest.approx(busy**2 / (1 - busy**2))


def test_erlang_c_of_a_textbook():
    """8 erlang on 10 servers: 40.9 % wait."""
    assert m_m_n(10, 0.8).waits == pytest.approx(0.409, abs=5e-4)


@pytest.mark.parametrize("busy", BUSY)
def test_two_brokers_in_turn_have_a_root_that_can_be_written_down(busy):
    """σ = (2ρ / (2ρ + 1 − σ))² is a cubic with the root 1; the smaller of the others is ours."""
    found = round_robin(2, busy).waits

    assert found == pytest.approx((1 + 4 * busy - math.sqrt(1 + 8 * busy)) / 2)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.8])
def test_with_two_queues_the_shortest_lies_between_one_queue_and_turns(busy):
    few = shortest_of_few(2, 2, busy)

    assert few is not None
    assert few.kind is FormKind.EXACT
    assert m_m_n(2, busy).mean_wait < few.mean_wait < round_robin(2, busy).mean_wait


def test_the_shortest_of_two_among_three_is_worse_than_of_three():
    two, three = shortest_of_few(2, 3, 0.7), shortest_of_few(3, 3, 0.7)

    assert two is not None
    assert three is not None
    assert three.mean_wait < two.mean_wait


def test_a_chain_that_is_too_large_is_not_made():
    assert shortest_of_few(8, 8, 0.9) is None
    assert shortest_of_few(1, 3, 0.5) is None
    assert shortest_of_few(4, 3, 0.5) is None


def test_the_shortest_of_two_out_of_many_as_its_series_says():
    assert shortest_of_many(2, 0.5).mean_wait == pytest.approx(0.5**2 + 0.5**6 + 0.5**14 + 0.5**30)


def test_without_brokers_to_tell_of_the_idle_queue_is_chance():
    assert idle_queue_many(1e-4, 0.7).mean_wait == pytest.approx(m_m_1(0.7).mean_wait, rel=1e-3)


def test_the_more_brokers_tell_a_dispatcher_the_less_is_waited():
    waits = [idle_queue_many(each, 0.8).mean_wait for each in (0.5, 1, 4, 16, 64, 256)]

    assert waits == sorted(waits, reverse=True)
    assert waits[-1] < 0.02


def test_records_that_take_equally_long_wait_half_as_long():
    assert m_d_1(0.8).mean_wait == m_m_1(0.8).mean_wait / 2


@pytest.mark.parametrize(
    ("form", "share"), [(m_m_1(0.9), 0.95), (m_m_n(5, 0.9), 0.99), (round_robin(3, 0.8), 0.99)]
)
def test_a_quantile_is_what_that_share_waits_at_most(form, share):
    wait = form.quantile(share)

    assert wait is not None
    assert form.waits * math.exp(-form.decay * wait) == pytest.approx(1 - share)


def test_where_most_do_not_wait_a_quantile_is_nothing():
    assert m_m_1(0.3).quantile(0.5) == 0.0
    assert m_d_1(0.3).quantile(0.5) is None


def test_a_sum_that_would_be_too_long_is_not_begun():
    assert m_d_n(10, 0.99) is not None
    assert m_d_n(10, 0.9999) is None


def test_a_split_over_unequal_brokers_is_a_queue_each():
    found = split({1: 0.5, 2: 0.5}, {1: 1.0, 2: 2.0}, foreign={2: 0.5})

    slow, fast = 1.0, (0.5 / 0.5) / 2.0
    assert found.mean_wait == pytest.approx((slow + fast) / 2)


def test_a_split_that_overloads_a_broker_waits_for_ever():
    assert split({1: 0.5, 2: 0.5}, {1: 1.0, 2: 0.4}).mean_wait == math.inf
    assert split({1: 0.5, 2: 0.0}, {1: 1.0, 2: 0.4}, foreign={2: 0.4}).mean_wait == 1.0


@pytest.mark.parametrize("busy", [0.0, 1.0, 1.2, -0.1])
@pytest.mark.parametrize(
    "form",
    [
        m_m_1,
        m_d_1,
        lambda busy: m_m_n(3, busy),
        lambda busy: m_d_n(3, busy),
        lambda busy: round_robin(3, busy),
        lambda busy: shortest_of_many(2, busy),
        lambda busy: shortest_of_few(2, 2, busy),
        lambda busy: idle_queue_many(2, busy),
    ],
)
def test_a_queue_that_is_never_done_has_no_form(form, busy):
    with pytest.raises(ValueError, match="below 1"):
        form(busy)
