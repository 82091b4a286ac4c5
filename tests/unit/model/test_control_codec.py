"""Control records, group state, decisions, receipts and rates as JSON."""

from __future__ import annotations

import json

import pytest

from trimtab.errors import BadFile
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import (
    Action,
    Decision,
    GroupState,
    Hello,
    MemberRate,
    Rate,
    ReadingStarted,
    ReadingStopped,
    Receipt,
    Start,
    StateQuery,
    StateReport,
    Stop,
)
from trimtab.model.control_codec import (
    control_from,
    control_to,
    decision_from,
    decision_to,
    group_state_from,
    group_state_to,
    receipt_from,
    receipt_to,
    topic_rates_from,
)
from trimtab.model.json_reader import parse

ORDERS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
SENDER = {"consumer": 0, "incarnation": "9b"}
MESSAGES = {
    '{"v":1,"type":"start","ts":1,"epoch":7,"seq":41,"partitions":[{"topic":"orders",'
    '"partition":0},{"topic":"orders","partition":1}]}': Start(epoch=7, seq=41, partitions=ORDERS),
    '{"v":1,"type":"start","ts":1,"epoch":7,"seq":42,"partitions":[],"incarnation":"9b"}': Start(
        epoch=7, seq=42, partitions=(), incarnation="9b"
    ),
    '{"v":1,"type":"stop","ts":1,"epoch":7,"seq":41,"partitions":[{"topic":"orders",'
    '"partition":1}]}': Stop(epoch=7, seq=41, partitions=ORDERS[1:]),
    '{"v":1,"type":"state_query","ts":1,"epoch":8,"query_id":"a1"}': StateQuery(
        epoch=8, query_id="a1"
    ),
    '{"v":1,"type":"started","ts":1,"consumer":0,"incarnation":"9b","epoch":7,"seq":41,'
    '"partitions":[{"topic":"orders","partition":1}]}': ReadingStarted(
        consumer=0, incarnation="9b", epoch=7, seq=41, partitions=ORDERS[1:]
    ),
    '{"v":1,"type":"stopped","ts":1,"consumer":0,"incarnation":"9b","epoch":7,"seq":41,'
    '"partitions":[{"topic":"orders","partition":1,"committed":8988}]}': ReadingStopped(
        consumer=0,
        incarnation="9b",
        epoch=7,
        seq=41,
        partitions=ORDERS[1:],
        committed={ORDERS[1]: 8988},
    ),
    '{"v":1,"type":"state","ts":1,"consumer":0,"incarnation":"9b","query_id":"a1",'
    '"partitions":[{"topic":"orders","partition":0}]}': StateReport(
        consumer=0, incarnation="9b", query_id="a1", partitions=ORDERS[:1]
    ),
    '{"v":1,"type":"hello","ts":1,"consumer":0,"incarnation":"9b","partitions":[]}': Hello(
        consumer=0, incarnation="9b"
    ),
    '{"v":1,"type":"rate","ts":1,"consumer":0,"incarnation":"9b","max_bytes_s":2300000.0,'
    '"max_records_s":95.0}': Rate(
        consumer=0, incarnation="9b", max_bytes_s=2_300_000.0, max_records_s=95.0
    ),
    '{"v":1,"type":"rate","ts":1,"member":"c-0-7a","incarnation":"9b","max_bytes_s":null,'
    '"max_records_s":95.0}': MemberRate(
        member="c-0-7a", incarnation="9b", max_bytes_s=None, max_records_s=95.0
    ),
}


@pytest.mark.parametrize(("text", "message"), MESSAGES.items())
def test_a_control_record_is_written_as_the_contract_has_it_and_read_again(text, message):
    written = control_to(message, ts=1)

    assert json.loads(text) == written
    assert control_from(parse(dumps(written), origin="control")) == message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"v":2,"type":"hello","ts":1,"consumer":0,"incarnation":"a","partitions":[]}', "version"),
        ('{"v":1,"type":"dance","ts":1}', "unknown type dance"),
        ('{"v":1,"type":"start","ts":1,"epoch":1,"partitions":[]}', "seq"),
        ('{"v":1,"type":"hello","ts":1,"consumer":-1,"incarnation":"a","partitions":[]}', "negat"),
    ],
)
def test_a_control_record_that_makes_no_sense_is_refused(text, why):
    with pytest.raises(BadFile, match=why):
        control_from(parse(text, origin="control"))


def test_a_stop_of_a_partition_that_was_never_committed_says_so():
    stopped = ReadingStopped(consumer=1, incarnation="b", epoch=1, seq=2, partitions=ORDERS[:1])

    read = control_from(parse(dumps(control_to(stopped, ts=5)), origin="control"))

    assert isinstance(read, ReadingStopped)
    assert read.committed == {ORDERS[0]: None}


def test_the_state_of_a_group_survives_writing_and_reading():
    state = GroupState(epoch=7, clean=True, assignment=Assignment({ORDERS[0]: 0}))

    written = group_state_to(state, ts=1)

    shape = {"v": 1, "epoch": 7, "clean": True, "assignment": {"orders": {"0": 0}}, "ts": 1}
    assert written == shape
    assert group_state_from(parse(dumps(written), origin="group")) == state


def test_the_numbers_of_a_subscribed_group_s_members_are_kept_with_its_state():
    members = {"orders-7d4f-x2x": 0, "orders-7d4f-b8k": 2}
    state = GroupState(epoch=7, clean=True, assignment=Assignment({ORDERS[0]: 0}), members=members)

    written = group_state_to(state, ts=1)

    assert written["members"] == members
    assert group_state_from(parse(dumps(written), origin="group")) == state


def test_a_decision_survives_writing_and_reading():
    decision = Decision(
        ts=1,
        group="g",
        action=Action.SCALE_UP,
        before=1,
        after=2,
        plan="7f3a9c01d2e4",
        reason="because",
        forecast={"consumers": 2},
    )

    written = decision_to(decision)

    assert written["from"] == 1
    assert written["to"] == 2
    assert decision_from(parse(dumps(written), origin="decisions")) == decision


@pytest.mark.parametrize("key", [b"a", b"\xff", None])
def test_a_receipt_survives_writing_and_reading_whatever_its_key(key):
    receipt = Receipt(
        run="r1",
        group="g",
        topic="orders",
        partition=0,
        offset=17,
        key=key,
        seq=5,
        consumer=0,
        incarnation="9b",
        event_ts=1,
        started_ts=2,
        finished_ts=3,
    )

    assert receipt_from(parse(dumps(receipt_to(receipt)), origin="receipts")) == receipt


def test_rates_of_a_topic_are_read_with_what_is_unknown_left_unknown():
    text = (
        '{"v":1,"ts":9,"window_start":1,"window_end":2,"topic":"orders","partitions":{"0":'
        '{"bytes_s":41667.0,"records_s":null,"end_offset":9000,"lag":{"g":12,"h":null},'
        '"source":"log_dirs","complete":true,"stale":false}}}'
    )

    rates = topic_rates_from(parse(text, origin="rates"))

    assert (rates.topic, rates.ts) == ("orders", 9)
    assert rates.partitions[0].records_s is None
    assert rates.partitions[0].lag == {"g": 12, "h": None}
