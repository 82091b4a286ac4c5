"""One value for every shape that Trimtab writes to files and topics, with what is often absent.

`documents()` are their bytes. They were written down as the files beside this one before the code
that makes them was rebuilt; `python -m tests.golden.samples` writes them again, which is right
only when a shape is meant to change. `older` has records of earlier versions that are still read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import Broker, BrokerId, ClusterSnapshot, Replicas, TopicPartition
from trimtab.model.codec import (
    Json,
    counts_from,
    counts_to,
    dumps,
    hot_keys_to,
    loads_from,
    loads_to,
    measurement_from,
    measurement_to,
    rates_to,
    snapshot_from,
    snapshot_to,
    weights_from,
    weights_to,
)
from trimtab.model.control import (
    Action,
    Decision,
    GroupState,
    Hello,
    MemberRate,
    PlanOrder,
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
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.journal_codec import journal_from, journal_to
from trimtab.model.json_reader import Node, parse
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.load import KeyLoad, Loads, LoadStep, Measurement, PartitionLoad, Source, Unit
from trimtab.model.plan import (
    BrokerCost,
    BrokerPlan,
    BrokerState,
    ConsumerPlan,
    KeyCost,
    KeyInverse,
    KeyMove,
    KeyPlan,
    KeyReason,
    KeyState,
    Layer,
    MemberName,
    ReplicaInverse,
    ReplicaMove,
    ReplicaReason,
    Scope,
)
from trimtab.model.plan_codec import plan_from, plan_to
from trimtab.model.telemetry import TelemetrySample, telemetry_to
from trimtab.model.weights import Weights
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.situation import situation_of_file

FOLDER = Path(__file__).parent / "wire"
TWO = (TopicPartition("orders", 0), TopicPartition("orders", 1))
SENDER: dict[str, Any] = {"consumer": 3, "incarnation": "9b"}
README_LOADS = {
    "v": 1,
    "capacity": 2000000,
    "assignment": {"orders": {"0": 0, "1": 0, "2": 0, "3": 1}},
    "steps": [{"loads": {"orders": {"0": 863461, "1": 1236539, "2": 400000, "3": 300000}}}],
}


@cache
def readme_plan(planner: str, **more: Any) -> ConsumerPlan:
    """The plan of the README's loads file, made once: modules ask for it as they are imported."""
    loads = loads_from(parse(json.dumps(README_LOADS), origin="loads.json"))
    situation = situation_of_file(loads)
    return plan_consumers(
        situation.loads, situation.current, situation.limits, planner=planner, made_ts=7, **more
    )


def _plan_in_full() -> ConsumerPlan:
    """One with arrivals, an orphan, something that fits nowhere, and names of members."""
    loads = {
        "capacity": 2500.5,
        "v": 1,
        "unit": "records/s",
        "capacities": {"1": 4000},
        "assignment": {"orders": {"0": 0, "1": 0, "2": 1}, "größe": {"0": 5}},
        "steps": [
            {"loads": {"orders": {"0": 863.25, "1": 9000, "2": 400, "3": 7}, "größe": {"0": 12}}}
        ],
    }
    situation = situation_of_file(loads_from(parse(json.dumps(loads), origin="loads.json")))
    plan = plan_consumers(
        *(situation.loads, situation.current, situation.limits),
        planner="bfd",
        made_ts=1,
        group="pay",
        dead=frozenset({5}),
    )
    name = MemberName(client_id="c", host="/10.0.0.1", member_id="c-1")
    return replace(plan, members={0: name, 1: name})


_ENVELOPE: dict[str, Any] = {
    "params": {"capacity": 2.0},
    "seed": 0,
    "made_ts": 1,
    "snapshot": "3f9c0a77b1d2",
    "gap": 0.25,
}


def _key_plan() -> KeyPlan:
    return KeyPlan(
        **_ENVELOPE,
        layer=Layer.KEYS,
        planner="smalops",
        scope=Scope(group=None, topics=("orders",)),
        moves=(
            KeyMove(
                key=b"a",
                source=3,
                target=5,
                count=1234,
                reason=KeyReason.BALANCE,
                numbers={"mean": 10.0},
            ),
            KeyMove(
                key=b"\xff",
                source=5,
                target=0,
                count=1,
                reason=KeyReason.COOL,
                numbers={},
            ),
        ),
        before=KeyState(e_lb=1.5, imbalance=2.0),
        after=KeyState(e_lb=1.0, imbalance=1.25),
        bound=1.0,
        cost=KeyCost(moves=2, count=1235),
        inverse=(
            KeyInverse(key=b"\xff", source=0, target=5),
            KeyInverse(key=b"a", source=5, target=3),
        ),
    )


def _broker_plan() -> BrokerPlan:
    one, two, three = BrokerId(1), BrokerId(2), BrokerId(3)
    return BrokerPlan(
        **_ENVELOPE,
        layer=Layer.BROKERS,
        planner="trim",
        scope=Scope(group=None, topics=("A",)),
        moves=(
            ReplicaMove(
                topic="A",
                partition=0,
                bytes=0,
                source=(one, two, three),
                target=(two, one, three),
                reason=ReplicaReason.REORDER,
                numbers={"f1": 3.5},
            ),
        ),
        before=BrokerState(f0=4.0, f1=6.0, f2=9.0, f_rack=9.5),
        after=BrokerState(f0=3.0, f1=4.5, f2=9.0, f_rack=9.0),
        bound=3.0,
        cost=BrokerCost(moves=1, bytes=0),
        inverse=(
            ReplicaInverse(
                topic="A", partition=0, source=(two, one, three), target=(one, two, three)
            ),
        ),
    )


def _loads() -> Loads:
    return Loads(
        capacity=2_000_000,
        unit=Unit.RECORDS_S,
        sla_s=5,
        assignment=Assignment({TWO[0]: 0}),
        capacities={1: 4_000_000.5},
        steps=(
            LoadStep(loads={TWO[0]: 41667, TWO[1]: 1236539.25}, lags={TWO[0]: 0, TWO[1]: 120}),
            LoadStep(loads={TWO[0]: 1}),
        ),
    )


def _replicas() -> tuple[Replicas, ...]:
    one, two = BrokerId(1), BrokerId(2)
    return (
        Replicas(
            topic="A",
            partition=0,
            leader=one,
            replicas=(one, two),
            isr=(one,),
            elr=(two,),
            log_bytes=7,
            begin_offset=1,
            end_offset=9,
        ),
        Replicas(topic="A", partition=1, leader=BrokerId(-1), replicas=(two,), isr=()),
    )


def _snapshot() -> ClusterSnapshot:
    return ClusterSnapshot(
        ts=5,
        cluster="Zx",
        brokers=(
            Broker(id=BrokerId(1), rack="a", capacity=1.5, alive=True),
            Broker(id=BrokerId(2)),
        ),
        partitions=_replicas(),
    )


def _telemetry(**asked: tuple[str, ...]) -> Json:
    sample = TelemetrySample(
        id="s1", ts=3, cluster="Zx", partitions=_replicas(), committed={}, **asked
    )
    return telemetry_to(sample, _replicas(), {"g": {0: 5}, "other": {7: 1}})


_PARTITION_LOADS = (
    PartitionLoad(
        topic="orders",
        partition=0,
        bytes_s=41667.5,
        records_s=410.0,
        source=Source.LOG_DIRS,
        end_offset=9000,
        lag={"g": 12, "h": None},
        lag_s={"g": 0.03, "h": None},
        committed_s={"g": 400.5},
        least_lag={"g": 0},
    ),
    PartitionLoad(
        topic="orders",
        partition=1,
        bytes_s=None,
        records_s=0.0,
        source=Source.EVENTS,
        complete=False,
    ),
)
_KEYS = (
    KeyLoad(topic="orders", key=b"a", lower=1200, upper=1234, share=0.04, partition_home=3),
    KeyLoad(topic="orders", key=b"\xff\x00", lower=1, upper=2, share=1.0, partition_home=None),
)


def _measurement() -> Measurement:
    return Measurement(
        cluster=None,
        from_ts=1,
        to_ts=2,
        window_s=30.0,
        rejects=4,
        partitions=_PARTITION_LOADS,
        keys=_KEYS,
    )


def _counts() -> KeyCounts:
    return KeyCounts(
        partitions=3,
        window_s=10.0,
        threshold=100,
        keys=(
            KeyCount(key=b"a", count=1234, partition=2, routed=True),
            KeyCount(key=b"\xff\x00", count=99, partition=0, upper=104),
        ),
        partition_totals=(500, 0, 2000),
    )


_RECEIPT: dict[str, Any] = {
    "run": "r1",
    "group": "g",
    "topic": "orders",
    "partition": 1,
    "offset": 88,
    "seq": 4,
    **SENDER,
    "event_ts": 1,
    "started_ts": 2,
    "finished_ts": 3,
}
_CONTROL: dict[str, Any] = {
    "start": Start(epoch=7, seq=41, partitions=TWO),
    "start-of-one": Start(epoch=7, seq=42, partitions=(), incarnation="9b"),
    "stop": Stop(epoch=7, seq=41, partitions=TWO[1:], incarnation="9b"),
    "state-query": StateQuery(epoch=8, query_id="a1"),
    "started": ReadingStarted(**SENDER, epoch=7, seq=41, partitions=TWO),
    "stopped": ReadingStopped(
        **SENDER, epoch=7, seq=41, partitions=TWO, committed={TWO[0]: 8988, TWO[1]: None}
    ),
    "state": StateReport(**SENDER, query_id="a1", partitions=TWO),
    "hello": Hello(**SENDER),
    "rate": Rate(**SENDER, max_bytes_s=2_300_000.0, max_records_s=None),
    "plan": PlanOrder(plan="7f3a9c01d2e4", hold_s=300.0, expires_ts=12),
    "member-rate": MemberRate(
        member="c-0-7a", incarnation="9b", max_bytes_s=None, max_records_s=95.5
    ),
}


def documents() -> dict[str, str]:
    """The text of every sample, by name."""
    made: dict[str, Json] = {
        "loads": loads_to(_loads()),
        "loads-least": loads_to(Loads(capacity=1, steps=(LoadStep(loads={TWO[0]: 1.5}),))),
        "counts": counts_to(_counts()),
        "snapshot": snapshot_to(_snapshot()),
        "measurement": measurement_to(_measurement()),
        "plan-readme-mwf": plan_to(readme_plan("mwf")),
        "plan-readme-trim": plan_to(readme_plan("trim")),
        "plan-in-full": plan_to(_plan_in_full()),
        "plan-keys": plan_to(_key_plan()),
        "plan-brokers": plan_to(_broker_plan()),
        "journal": journal_to(
            JournalEntry(
                plan="7f3a9c01d2e4",
                state=PlanState.RUNNING,
                step=3,
                of=12,
                ts=1,
                found={"broker 1": {"leader.replication.throttled.rate": None, "x": "5"}},
            )
        ),
        "journal-failed": journal_to(
            JournalEntry(
                plan="7f3a9c01d2e4",
                state=PlanState.FAILED,
                step=0,
                of=2,
                ts=1,
                why="a consumer has ended",
            )
        ),
        "rates": rates_to(
            "orders",
            _PARTITION_LOADS,
            ts=9,
            window_start=1,
            window_end=8,
            stale=frozenset({1}),
        ),
        "hotkeys": hot_keys_to(
            "orders", _KEYS, window_start=1, window_end=2, n=30_000, epsilon=0.001
        ),
        "telemetry": _telemetry(named_groups=("h", "g")),
        "telemetry-all-groups": _telemetry(),
        "weights": weights_to(Weights(ts=4, valid_s=30.0, weights={2: 0.25, 1: 0.75})),
        "group-state": group_state_to(
            GroupState(epoch=3, clean=False, assignment=Assignment({TWO[1]: 2})), ts=1
        ),
        "group-state-members": group_state_to(
            GroupState(
                epoch=3,
                clean=True,
                assignment=Assignment({TWO[1]: 2}),
                members={"pod-2": 2, "pod-0": 0},
            ),
            ts=1,
        ),
        "decision": decision_to(
            Decision(
                ts=1,
                group="g",
                action=Action.SCALE_UP,
                before=1,
                after=2,
                reason="overload",
                plan="7f3a9c01d2e4",
                forecast={"consumers": 2, "max_load": 1.5},
            )
        ),
        "decision-none": decision_to(
            Decision(ts=1, group="g", action=Action.NONE, before=1, after=1, reason="level")
        ),
        "receipt": receipt_to(Receipt(**_RECEIPT, key=b"\xc3(", set_id=1, chain="c0")),
        "receipt-text-key": receipt_to(Receipt(**_RECEIPT, key="größe".encode())),
        "receipt-keyless": receipt_to(Receipt(**{**_RECEIPT, "seq": None}, key=None)),
        **{f"control-{name}": control_to(m, ts=11) for name, m in _CONTROL.items()},
    }
    return {name: dumps(value) for name, value in made.items()}


READERS: Mapping[str, Callable[[Node], object]] = {
    "loads": loads_from,
    "counts": counts_from,
    "snapshot": snapshot_from,
    "measurement": measurement_from,
    "plan": plan_from,
    "journal": journal_from,
    "rates": topic_rates_from,
    "weights": weights_from,
    "group": group_state_from,
    "decision": decision_from,
    "receipt": receipt_from,
    "control": control_from,
}
"""By the first word of a sample's name; what only Spark or other programs read has none."""

_WRONG: tuple[Any, ...] = ("x", -1, 1.5, True, None, [], {})


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    match value:
        case dict():
            for name in value:
                yield from ((*place, name), *_places(value[name], (*place, name)))
        case list():
            for i, entry in enumerate(value):
                yield from ((*place, i), *_places(entry, (*place, i)))
        case _:
            return


def _changed(document: Any, place: tuple[str | int, ...], change: str, new: Any) -> str:
    copy = json.loads(json.dumps(document))
    at = copy
    for step in place[:-1]:
        at = at[step]
    if change == "gone":
        del at[place[-1]]
    else:
        at[place[-1]] = new
    return json.dumps(copy)


def judged(text: str, read: Callable[[Node], object]) -> str:
    """`read`, or the place that the error names, or the error's kind where it names none."""
    node = parse(text, origin="FILE")
    try:
        read(node)
    except TrimtabError as error:
        head, *rest = str(error).removeprefix("FILE: ").split(": ")
        return f"{type(error).__name__} {head if rest else '-'}"
    except ValueError:
        return "ValueError"
    return f"read, {len(node.warnings)} warnings"


def verdicts(name: str, text: str) -> dict[str, str]:
    """How a document is judged after every single change of a field."""
    read = READERS[name.split("-", maxsplit=1)[0]]
    document = json.loads(text)
    out = {"as it is": judged(text, read)}
    for place in _places(document):
        at = "/".join(map(str, place))
        out[f"{at} gone"] = judged(_changed(document, place, "gone", None), read)
        for new in _WRONG:
            out[f"{at} = {json.dumps(new)}"] = judged(_changed(document, place, "is", new), read)
    return out


def is_judged(name: str) -> bool:
    """Whether its changes are judged: one plan is enough, and it is the longest."""
    return name.split("-", maxsplit=1)[0] in READERS and not name.startswith("plan-readme")


def main() -> None:
    """Writes every golden file."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in documents().items():
        (FOLDER / f"{name}.json").write_text(text + "\n")
        if is_judged(name):
            found = json.dumps(verdicts(name, text), indent=0, ensure_ascii=False)
            (FOLDER / f"{name}.verdicts.json").write_text(found + "\n")


if __name__ == "__main__":
    main()
