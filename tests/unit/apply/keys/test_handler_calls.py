"""Calls of a user's handler: what fails changes nothing."""

from __future__ import annotations

import pytest

from trimtab.apply.handling import Interrupted
from trimtab.apply.keys.handler_calls import HandlerCalls
from trimtab.apply.keys.keyed_handler import KeyedHandler, Output
from trimtab.apply.keys.task_round import TaskHandling
from trimtab.kafka.retry import Retry
from trimtab.model.record import Record

RECORD = Record("orders", 0, 5, b"a", b"v", (), 1)


def calls_of(handler, *, attempts=1, stopped=False, in_hand=None):
    ticks = iter(range(10, 99, 10))
    return HandlerCalls(
        TaskHandling(
            handler=handler,
            retry=Retry(attempts=attempts, first_s=0),
            stopped_within=lambda _pause_s: stopped,
            in_hand=in_hand or (lambda _record: None),
            now_us=lambda: next(ticks),
        )
    )


def added(_key, state, _record):
    state = state or {"n": 0}
    state["n"] += 1
    return state, [Output("totals", b"%d" % state["n"])]


def test_a_call_decodes_and_encodes_the_state():
    call = calls_of(KeyedHandler(added, chain_of=str)).handle(b"a", b'{"n":4}', RECORD)

    assert call == (b'{"n":5}', (Output("totals", b"5"),), 10, 20, "{'n': 5}", None)


def test_the_first_call_gets_no_state_and_no_state_may_be_left():
    seen = []

    def handle(key, state, record):
        seen.append(state)
        return None, ()

    call = calls_of(KeyedHandler(handle)).handle(b"a", None, RECORD)

    assert seen == [None]
    assert call.value is None
    assert call.error is None


def test_a_handler_that_changes_its_state_and_fails_gets_it_unchanged_again():
    given = []

    def handle(key, state, record):
        given.append(dict(state))
        state["n"] = -1
        if len(given) < 4:
            raise ValueError("not now")
        return {"n": 1}, ()

    calls = calls_of(KeyedHandler(handle), attempts=3)
    failed = calls.handle(b"a", b'{"n":4}', RECORD)
    done = calls.handle(b"a", failed.value, RECORD)

    assert failed[:2] == (b'{"n":4}', ())
    assert failed.error == "ValueError: not now"
    assert given == [{"n": 4}] * 4
    assert done.value == b'{"n":1}'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (7, "TypeError: a keyed handler returns (state, outputs), not int"),
        (({1, 2}, ()), "TypeError: Object of type set is not JSON serializable"),
        ((1, [b"x"]), "TypeError: an output is a trimtab.Output, not bytes"),
        ((1, Output("t", b"x")), "TypeError: the outputs of a keyed handler are a list"),
    ],
)
def test_a_bad_answer_is_a_failure_without_outputs(answer, error):
    call = calls_of(KeyedHandler(lambda *_: answer)).handle(b"a", b"1", RECORD)

    assert (call.value, call.outputs, call.error) == (b"1", (), error)


def test_a_state_that_cannot_be_decoded_is_a_failure_of_the_record():
    call = calls_of(KeyedHandler(added)).handle(b"a", b"{", RECORD)

    assert call.value == b"{"
    assert (call.error or "").startswith("JSONDecodeError")


def test_a_chain_that_fails_is_a_failure_of_the_record():
    call = calls_of(KeyedHandler(added, chain_of=lambda s: s["no"])).handle(b"a", None, RECORD)

    assert (call.value, call.chain, call.error) == (None, None, "KeyError: 'no'")


def test_a_handler_that_exits_does_not_end_the_consumer():
    def handle(key, state, record):
        raise SystemExit(3)

    assert calls_of(KeyedHandler(handle)).handle(b"a", None, RECORD).error == "SystemExit: 3"


def test_a_handler_is_tried_as_often_as_it_may_be():
    tries = []

    def handle(key, state, record):
        tries.append(state)
        raise ValueError

    calls_of(KeyedHandler(handle), attempts=4).handle(b"a", b"1", RECORD)

    assert tries == [1, 1, 1, 1]


def test_a_consumer_that_stops_between_two_attempts_interrupts_the_call():
    hands: list[Record | None] = []

    def handle(key, state, record):
        raise ValueError

    calls = calls_of(KeyedHandler(handle), attempts=2, stopped=True, in_hand=hands.append)
    with pytest.raises(Interrupted):
        calls.handle(b"a", None, RECORD)

    assert hands == [RECORD, None]


def test_a_state_is_decoded_once_per_round_but_not_after_another_one_was_adopted():
    objects = []

    def handle(key, state, record):
        objects.append(state)
        return state, ()

    calls = calls_of(KeyedHandler(handle))
    one = calls.handle(b"a", b'{"n":4}', RECORD)
    calls.handle(b"a", one.value, RECORD)
    calls.handle(b"a", b'{"n":5}', RECORD)
    calls.forget_states()
    calls.handle(b"a", one.value, RECORD)

    assert objects == [{"n": 4}, {"n": 4}, {"n": 5}, {"n": 4}]
    assert objects[0] is objects[1]
    assert objects[3] is not objects[0]


def test_the_batch_form_gets_all_records():
    seen = []

    def handle_batch(key, state, records):
        seen.append((key, state, list(records)))
        return len(records), ()

    calls = calls_of(KeyedHandler(handle_batch=handle_batch))

    assert calls.is_batch
    assert calls.handle_batch(b"a", b"3", [RECORD, RECORD]).value == b"2"
    assert seen == [(b"a", 3, [RECORD, RECORD])]


def test_close_gives_last_outputs_and_its_errors_are_told():
    last = Output("totals", b"last")

    assert calls_of(KeyedHandler(added)).close(b"a", b"1") == ((), None)
    good = KeyedHandler(added, close=lambda key, state: [last] if state == 1 else None)
    assert calls_of(good).close(b"a", b"1") == ((last,), None)

    def fail(key, state):
        raise ZeroDivisionError("division by zero")

    bad = KeyedHandler(added, close=fail)
    assert calls_of(bad, attempts=5, stopped=True).close(b"a", b"1") == (
        (),
        "ZeroDivisionError: division by zero",
    )
    outputs, error = calls_of(good).close(b"a", b"{")
    assert outputs == ()
    assert (error or "").startswith("JSONDecodeError")


def test_close_is_not_called_without_a_state():
    closed = []
    handler = KeyedHandler(added, close=lambda key, state: closed.append(key))

    assert calls_of(handler).close(b"a", None) == ((), None)
    assert closed == []
