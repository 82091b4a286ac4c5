"""Every documented shape survives a round trip; every bad file gets one line that names it."""

import hashlib
import json
from dataclasses import replace

import pytest

from trimtab.errors import BadFile, PlanDamaged
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import Broker, BrokerId, ClusterSnapshot, TopicPartition
from trimtab.model.codec import (
    canonical,
    dumps,
    hot_keys_to,
    loads_from,
    loads_to,
    measurement_from,
    measurement_to,
    rates_to,
    read_loads,
    read_snapshot,
    snapshot_from,
    snapshot_to,
    weights_from,
    weights_to,
)
from trimtab.model.json_reader import parse
from trimtab.model.load import KeyLoad, Loads, Measurement, PartitionLoad, Source, Unit
from trimtab.model.plan import MemberName
from trimtab.model.plan_codec import consumers_snapshot_id, plan_from, plan_id, plan_to, read_plan
from trimtab.model.weights import Weights
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.situation import situation_of_file

LOADS = """
{"v":1,"capacity":2000000,"unit":"bytes/s","sla_s":5,"assignment":{"orders":{"0":0}},
 "capacities":{"1":4000000},
 "steps":[{"loads":{"orders":{"0":41667,"1":1236539}},"lags":{"orders":{"0":0,"1":120}}}]}
"""
SNAPSHOT = """
{"v":1,"brokers":[{"id":1,"rack":"a","capacity":1.0},{"id":2}],
 "partitions":[{"topic":"A","partition":0,"leader":1,"replicas":[1,2],"isr":[1,2],"bytes":0},
               {"topic":"A","partition":1,"leader":-1,"replicas":[2],"isr":[]}]}
"""
MEASUREMENT = """
{"v":1,"kind":"measurement","cluster":"Zx","from_ts":1,"to_ts":2,"window_s":30,"rejects":0,
 "partitions":[{"topic":"orders","partition":0,"bytes_s":41667.0,"records_s":410.0,
  "source":"log_dirs","end_offset":9000,"lag":{"g":12},"lag_s":{"g":0.03},"complete":true}],
 "keys":[{"topic":"orders","key":"a","lower":1200,"upper":1234,"share":0.04,"partition_home":3}]}
"""


def node(text):
    return parse(text, origin="f.json")


def a_plan():
    situation = situation_of_file(loads_from(node(LOADS)))
    return plan_consumers(
        situation.loads, situation.current, situation.limits, planner="mwf", made_ts=1, group="g"
    )


def test_a_loads_file_is_read_in_full():
    loads = loads_from(node(LOADS))
    assert loads.capacity == 2_000_000
    assert loads.unit is Unit.BYTES_S
    assert loads.sla_s == 5
    assert loads.assignment == Assignment({TopicPartition("orders", 0): 0})
    assert loads.capacities == {1: 4_000_000}
    assert loads.steps[0].loads[TopicPartition("orders", 1)] == 1_236_539
    assert loads.steps[0].lags[TopicPartition("orders", 1)] == 120


def test_a_loads_file_needs_only_version_capacity_and_steps():
    loads = loads_from(node('{"v":1,"capacity":1,"steps":[{"loads":{}}]}'))
    assert loads == Loads(capacity=1, steps=loads.steps)


def test_every_file_shape_survives_a_round_trip():
    assert json.loads(dumps(loads_to(loads_from(node(LOADS))))) == json.loads(LOADS)
    measured = measurement_to(measurement_from(node(MEASUREMENT)))
    assert json.loads(dumps(measured)) == json.loads(MEASUREMENT)
    snapshot = snapshot_from(node(SNAPSHOT))
    assert snapshot_from(node(dumps(snapshot_to(snapshot)))) == snapshot
    plan = a_plan()
    assert plan_from(node(dumps(plan_to(plan)))) == plan


def test_what_is_unknown_stays_null_through_a_measurement_file():
    unknown = PartitionLoad(
        topic="t",
        partition=0,
        bytes_s=None,
        records_s=None,
        source=Source.OFFSETS,
        lag={"g": None},
        lag_s={"g": None},
        committed_s={"g": 95.5},
        least_lag={"g": 40},
        complete=False,
    )
    m = Measurement(
        cluster=None, from_ts=0, to_ts=1, window_s=1.5, rejects=2, partitions=(unknown,)
    )
    written = measurement_to(m)
    assert written["partitions"][0]["bytes_s"] is None
    assert measurement_from(node(dumps(written))) == m


def test_a_key_that_is_not_text_travels_as_base64():
    keys = tuple(
        KeyLoad(topic="t", key=key, lower=1, upper=2, share=0.5, partition_home=0)
        for key in (b"a", "ä".encode(), b"\xff\x00")
    )
    m = Measurement(
        cluster="c", from_ts=0, to_ts=1, window_s=1, rejects=0, partitions=(), keys=keys
    )
    written = measurement_to(m)
    assert [k.get("key") for k in written["keys"]] == ["a", "ä", None]
    assert written["keys"][2]["key_b64"] == "/wA="
    assert measurement_from(node(dumps(written))) == m


def test_a_plan_has_the_shape_of_the_contract():
    written = plan_to(a_plan())
    assert list(written) == [
        *("v", "kind", "id", "layer", "planner", "params", "seed", "made_ts", "snapshot", "scope"),
        *("moves", "assignment", "before", "after", "bound", "bound_moved_load", "gap", "cost"),
        *("inverse", "unplaced"),
    ]
    assert set(written["moves"][0]) == {
        *("topic", "partition", "from", "to", "load", "reason", "numbers"),
    }
    assert set(written["cost"]) == {"moves", "moved_load", "rscore", "orphan_load"}
    assert written["params"] == {"capacity": 2_000_000, "capacities": {"1": 4_000_000}}


def test_records_of_our_topics_have_the_shape_of_the_contract():
    measured = measurement_from(node(MEASUREMENT))
    rates = rates_to("orders", measured.partitions, ts=1, window_start=1, window_end=2)
    assert rates["partitions"]["0"] == {
        "bytes_s": 41667.0,
        "records_s": 410.0,
        "end_offset": 9000,
        "lag": {"g": 12},
        "source": "log_dirs",
        "complete": True,
        "stale": False,
    }
    hot = hot_keys_to("orders", measured.keys, window_start=1, window_end=2, n=9, epsilon=0.1)
    assert hot["keys"] == [
        {"key": "a", "lower": 1200, "upper": 1234, "share": 0.04, "partition_home": 3}
    ]


BAD_LOADS = {
    "wrong version": ('{"v":2,"capacity":1,"steps":[]}', "v: unknown version 2"),
    "no version": ('{"capacity":1,"steps":[]}', 'has no "v"'),
    "true is no version": ('{"v":true,"capacity":1,"steps":[]}', "v: unknown version true"),
    "negative": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":-5}}}]}',
        "steps[0].loads.t.0: is negative: -5",
    ),
    "NaN": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":NaN}}}]}',
        "steps[0].loads.t.0: should be a finite number, is nan",
    ),
    "Infinity": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":Infinity}}}]}',
        "steps[0].loads.t.0: should be a finite number, is inf",
    ),
    "1e999": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":1e999}}}]}',
        "steps[0].loads.t.0: should be a finite number, is inf",
    ),
    "an integer no float can hold": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":1' + "0" * 400 + "}}}]}",
        "steps[0].loads.t.0: should be a finite number",
    ),
    "an integer of thousands of digits": (
        '{"v":1,"capacity":1' + "0" * 5000 + ',"steps":[]}',
        "contains a number that is too long",
    ),
    "duplicate partition": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":1,"0":2}}}]}',
        'steps[0].loads.t: "0" appears twice',
    ),
    "duplicate partition written otherwise": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":1,"00":2}}}]}',
        'steps[0].loads.t: "00" is not an index',
    ),
    "a topic twice": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":1},"t":{"1":2}}}]}',
        'steps[0].loads: "t" appears twice',
    ),
    "text for a number": (
        '{"v":1,"capacity":"1","steps":[{"loads":{}}]}',
        "capacity: should be a number, is text",
    ),
    "true for a number": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":true}}}]}',
        "steps[0].loads.t.0: should be a number, is true or false",
    ),
    "an array for an object": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":[1,2]}}]}',
        "steps[0].loads.t: should be an object, is an array",
    ),
    "null load": (
        '{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":null}}}]}',
        "steps[0].loads.t.0: should be a number, is null",
    ),
    "half a consumer": (
        '{"v":1,"capacity":1,"assignment":{"t":{"0":0.5}},"steps":[{"loads":{}}]}',
        "assignment.t.0: should be a whole number, is 0.5",
    ),
    "negative consumer": (
        '{"v":1,"capacity":1,"assignment":{"t":{"0":-1}},"steps":[{"loads":{}}]}',
        "assignment.t.0: is negative: -1",
    ),
    "no capacity": ('{"v":1,"capacity":0,"steps":[{"loads":{}}]}', "capacity: should be above 0"),
    "a capacity of nothing": (
        '{"v":1,"capacity":1,"capacities":{"1":0},"steps":[{"loads":{}}]}',
        "capacities.1: should be above 0",
    ),
    "no steps": ('{"v":1,"capacity":1,"steps":[]}', "steps: has no steps"),
    "unknown unit": (
        '{"v":1,"capacity":1,"unit":"MB/s","steps":[{"loads":{}}]}',
        "unit: should be bytes/s or records/s, is MB/s",
    ),
    "truncated": ('{"v":1,"capacity":1,', "line 1 column 21: the JSON ends too early"),
    "truncated in a later line": ('{"v":1,\n"capacity":', "line 2 column 12: the JSON ends too"),
    "not JSON": ("{'v':1}", "line 1 column 2: "),
    "empty": ("", "is empty"),
    "only a number": ("7", "should be an object, is a number"),
    "another kind": ('{"v":1,"kind":"plan"}', "kind: should be measurement or absent, is plan"),
}


@pytest.mark.parametrize(("text", "fault"), BAD_LOADS.values(), ids=BAD_LOADS)
def test_a_bad_loads_file_gets_one_line_naming_file_and_place(text, fault, tmp_path):
    path = tmp_path / "loads.json"
    path.write_text(text)
    with pytest.raises(BadFile) as raised:
        read_loads(path)
    assert raised.value.message.startswith(f"{path}: {fault}")
    assert "\n" not in raised.value.message
    assert len(raised.value.message) < len(str(path)) + 150


def test_a_file_that_is_not_utf8_is_named_with_the_byte(tmp_path):
    path = tmp_path / "loads.json"
    path.write_bytes(b'{"v":1,"\xff":2}')
    with pytest.raises(BadFile, match=r"loads\.json: byte 8 is not UTF-8"):
        read_loads(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadFile, match=r"absent\.json: No such file"):
        read_loads(tmp_path / "absent.json")


def test_a_file_nested_too_deeply_is_refused(tmp_path):
    path = tmp_path / "loads.json"
    path.write_text("[" * 200_000)
    with pytest.raises(BadFile, match="nested too deeply"):
        read_loads(path)


BROKER = '"brokers":[{"id":1},{"id":2}]'
BAD_SNAPSHOTS = {
    "unknown leader": (
        '{"topic":"A","partition":0,"leader":3,"replicas":[1],"isr":[1]}',
        "partitions[0].leader: broker 3 is not in the list of brokers",
    ),
    "unknown replica": (
        '{"topic":"A","partition":0,"leader":1,"replicas":[1,9],"isr":[1]}',
        "partitions[0].replicas[1]: broker 9 is not in the list of brokers",
    ),
    "leader without replica": (
        '{"topic":"A","partition":0,"leader":2,"replicas":[1],"isr":[1]}',
        "partitions[0].leader: broker 2 is the leader but not a replica",
    ),
    "in sync without replica": (
        '{"topic":"A","partition":0,"leader":1,"replicas":[1],"isr":[1,2]}',
        "partitions[0].isr: broker 2 is in sync but not a replica",
    ),
    "a replica twice": (
        '{"topic":"A","partition":0,"leader":1,"replicas":[1,1],"isr":[1]}',
        "partitions[0].replicas: lists a broker twice",
    ),
    "a partition twice": (
        ",".join(['{"topic":"A","partition":0,"leader":1,"replicas":[1],"isr":[1]}'] * 2),
        "partitions[1]: partition A-0 appears twice",
    ),
    "negative size": (
        '{"topic":"A","partition":0,"leader":1,"replicas":[1],"isr":[1],"bytes":-1}',
        "partitions[0].bytes: is negative: -1",
    ),
}


@pytest.mark.parametrize(("partitions", "fault"), BAD_SNAPSHOTS.values(), ids=BAD_SNAPSHOTS)
def test_a_bad_snapshot_file_gets_one_line_naming_file_and_place(partitions, fault, tmp_path):
    path = tmp_path / "snapshot.json"
    path.write_text(f'{{"v":1,{BROKER},"partitions":[{partitions}]}}')
    with pytest.raises(BadFile) as raised:
        read_snapshot(path)
    assert raised.value.message == f"{path}: {fault}"


def test_a_snapshot_says_which_brokers_are_alive():
    brokers = '"brokers":[{"id":1,"alive":true},{"id":2,"alive":false},{"id":3}]'
    snapshot = snapshot_from(node(f'{{"v":1,{brokers},"partitions":[]}}'))

    assert [broker.alive for broker in snapshot.brokers] == [True, False, None]
    assert snapshot_from(node(dumps(snapshot_to(snapshot)))) == snapshot
    assert json.loads(dumps(snapshot_to(snapshot)))["brokers"][2] == {"id": 3}
    with pytest.raises(BadFile, match=r"brokers\[0\].alive"):
        snapshot_from(node('{"v":1,"brokers":[{"id":1,"alive":"no"}],"partitions":[]}'))


def test_a_broker_that_stands_twice_in_a_snapshot_is_refused():
    with pytest.raises(BadFile, match=r"brokers\[1\]: broker 1 appears twice"):
        snapshot_from(node('{"v":1,"brokers":[{"id":1},{"id":1}],"partitions":[]}'))


def test_a_partition_that_stands_twice_in_a_measurement_is_refused():
    twice = json.loads(MEASUREMENT)
    twice["partitions"] *= 2
    with pytest.raises(BadFile, match=r"partitions\[1\]: partition orders-0 appears twice"):
        measurement_from(node(dumps(twice)))


def test_eligible_leader_replicas_are_read_and_written_where_there_are_any():
    listed = '{"topic":"A","partition":0,"leader":1,"replicas":[1,2],"isr":[1],"elr":[2]}'
    brokers = '"brokers":[{"id":1},{"id":2}]'
    snapshot = snapshot_from(node(f'{{"v":1,{brokers},"partitions":[{listed}]}}'))
    assert snapshot.partitions[0].elr == (2,)
    assert snapshot_from(node(dumps(snapshot_to(snapshot)))) == snapshot
    assert "elr" not in dumps(snapshot_to(snapshot_from(node(SNAPSHOT))))
    stranger = listed.replace('"replicas":[1,2]', '"replicas":[1]')
    with pytest.raises(BadFile, match="broker 2 is eligible but not a replica"):
        snapshot_from(node(f'{{"v":1,{brokers},"partitions":[{stranger}]}}'))


def test_a_snapshot_value_holds_each_partition_once():
    place = snapshot_from(node(SNAPSHOT)).partitions[0]
    with pytest.raises(ValueError, match="A-0 appears twice"):
        ClusterSnapshot(
            ts=0, cluster=None, brokers=(Broker(id=BrokerId(1)),), partitions=(place, place)
        )


def test_unknown_fields_are_warnings_that_name_file_and_place(tmp_path):
    path = tmp_path / "loads.json"
    path.write_text('{"v":1,"capacty":2,"capacity":1,"steps":[{"loads":{},"lag":{}}]}')
    _, warnings = read_loads(path)
    assert warnings == [
        f'{path}: field "capacty" is unknown and was ignored',
        f'{path}: field "lag" in steps[0] is unknown and was ignored',
    ]


def test_unknown_fields_of_a_plan_are_warnings_too(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(dumps({**plan_to(a_plan()), "note": "mine"}))
    plan, warnings = read_plan(path)
    assert plan == a_plan()
    assert warnings == [f'{path}: field "note" is unknown and was ignored']


def test_the_canonical_form_is_sorted_without_spaces_times_and_ids():
    assert canonical({"b": {"y": "ü", "x": 0.5}, "a": None, "id": "7f", "made_ts": 3}) == (
        '{"a":null,"b":{"x":0.5,"y":"ü"}}'
    )


def test_a_plan_id_can_be_recomputed_from_the_file_by_the_contract_alone():
    """Names sorted, no spaces, times and ids left out, SHA-256, twelve digits."""
    file = json.loads(dumps(plan_to(a_plan())))
    rest = {name: value for name, value in file.items() if name not in ("id", "made_ts")}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == file["id"]


def test_member_names_are_kept_with_a_plan_and_do_not_change_its_id():
    plan = a_plan()
    name = MemberName(client_id="shop", host="/10.0.0.7", member_id="shop-1f")
    named = replace(plan, members={0: name, 10: name})
    assert plan_id(named) == plan_id(plan)
    assert "members" not in plan_to(plan)
    assert plan_from(parse(dumps(plan_to(named)), origin="plan.json")) == named


def test_unknown_fields_inside_a_plan_are_named_with_their_place(tmp_path):
    path, changed = tmp_path / "plan.json", plan_to(a_plan())
    changed["cost"] = {**changed["cost"], "euros": 5}
    path.write_text(dumps(changed))
    _, warnings = read_plan(path)
    assert warnings == [f'{path}: field "euros" in cost is unknown and was ignored']


def test_a_topic_named_like_a_time_or_an_id_counts_in_the_canonical_form():
    one = TopicPartition("user_id", 0)
    before, after = Assignment({one: 0}), Assignment({one: 1})
    assert consumers_snapshot_id([one], before) != consumers_snapshot_id([one], after)


def test_a_snapshot_id_changes_with_partitions_and_owners_only():
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    first = consumers_snapshot_id([one, two], Assignment({one: 0}))
    assert first == consumers_snapshot_id([two, one], Assignment({one: 0}))
    assert first != consumers_snapshot_id([one], Assignment({one: 0}))
    assert first != consumers_snapshot_id([one, two], Assignment({one: 0, two: 0}))
    assert len(first) == 12


def test_a_plan_id_changes_with_the_content_and_not_with_the_time():
    plan = a_plan()
    assert plan_id(replace(plan, made_ts=99)) == plan_id(plan)
    assert plan_id(replace(plan, planner="bfd")) != plan_id(plan)
    assert plan_id(replace(plan, snapshot="0")) != plan_id(plan)
    assert len(plan_id(plan)) == 12


def test_whole_floats_and_integers_give_one_plan_id():
    plan = a_plan()
    floats = replace(plan, params={**plan.params, "capacity": 2_000_000.0}, gap=0)
    assert plan_id(floats) == plan_id(replace(plan, gap=0.0))


def test_a_plan_whose_content_was_changed_is_damaged():
    written = plan_to(a_plan())
    written["moves"][0]["to"] = 7
    with pytest.raises(PlanDamaged, match=r"f\.json: the plan has the id") as raised:
        plan_from(node(dumps(written)))
    assert raised.value.exit_code == 5


BAD_PLANS = {
    "another kind": ({"kind": "measurement"}, "kind: should be plan, is measurement"),
    "another layer": ({"layer": "records"}, "layer: unknown layer records"),
    "no capacity": ({"params": {}}, 'params: has no "capacity"'),
    "a number that is none": (
        {"params": {"capacity": 1, "slack": [float("nan")]}},
        "params.slack[0]: should be a finite number, is nan",
    ),
    "an unknown reason": (
        {
            "moves": [
                {
                    "topic": "t",
                    "partition": 0,
                    "from": None,
                    "to": 0,
                    "load": 1,
                    "reason": "because",
                    "numbers": {},
                }
            ]
        },
        "moves[0].reason: unknown reason because",
    ),
}


@pytest.mark.parametrize(("fields", "fault"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_a_plan_that_is_none_gets_one_line_naming_file_and_place(fields, fault):
    with pytest.raises(BadFile) as raised:
        plan_from(node(json.dumps({**plan_to(a_plan()), **fields})))
    assert raised.value.message.startswith(f"f.json: {fault}")


WEIGHTS = '{"v":1,"ts":1,"valid_s":10,"weights":{"1":1.0,"2":0.3}}'


def test_weights_are_written_and_read_as_the_contract_says():
    weights = weights_from(parse(WEIGHTS, origin="trimtab.weights"))

    assert weights == Weights(ts=1, valid_s=10, weights={1: 1.0, 2: 0.3})
    assert dumps(weights_to(weights)).replace(" ", "") == WEIGHTS


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ('{"v":2,"ts":1,"valid_s":10,"weights":{}}', "unknown version 2"),
        ('{"v":1,"ts":1,"valid_s":0,"weights":{}}', "valid_s: should be above 0"),
        ('{"v":1,"ts":1,"valid_s":10,"weights":{"1":-1}}', "weights.1: is negative"),
        ('{"v":1,"ts":1,"valid_s":10,"weights":{"one":1}}', '"one" is not an index'),
        ('{"v":1,"ts":1,"valid_s":10}', 'has no "weights"'),
    ],
)
def test_weights_that_are_none_are_refused(record, complaint):
    with pytest.raises(BadFile, match=complaint):
        weights_from(parse(record, origin="trimtab.weights"))


@pytest.mark.parametrize(
    ("text", "read", "complaint"),
    [
        (
            LOADS.replace("orders", "\\udcff"),
            loads_from,
            r'f.json: steps[0].loads: the name "\udcff" is not valid Unicode',
        ),
        (
            MEASUREMENT.replace('"topic":"orders"', '"topic":"\\ud800x"', 1),
            measurement_from,
            r'f.json: partitions[0].topic: "\ud800x" is not valid Unicode',
        ),
        (
            MEASUREMENT.replace('"key":"a"', '"key":"\\udcff"'),
            measurement_from,
            r'f.json: keys[0].key: "\udcff" is not valid Unicode',
        ),
        (
            SNAPSHOT.replace('"partition":1', f'"partition":{2**63}'),
            snapshot_from,
            f"f.json: partitions[1].partition: is {2**63}, the maximum is {2**63 - 1}",
        ),
        (
            SNAPSHOT.replace('"bytes":0', '"bytes":1e308'),
            snapshot_from,
            f"f.json: partitions[0].bytes: is 1e+308, the maximum is {2**63 - 1}",
        ),
        (
            SNAPSHOT.replace('"id":2', f'"id":{2**70}'),
            snapshot_from,
            f"f.json: brokers[1].id: is {2**70}"[:-3],
        ),
    ],
)
def test_half_a_surrogate_pair_and_numbers_beyond_64_bits_are_named(text, read, complaint):
    with pytest.raises(BadFile) as caught:
        read(node(text))

    assert caught.value.message.startswith(complaint)


def test_surrogate_pairs_and_other_letters_are_read():
    text = LOADS.replace("orders", "\\ud83d\\ude00 ärger")

    assert {p.topic for p in loads_from(node(text)).steps[0].loads} == {"😀 ärger"}
