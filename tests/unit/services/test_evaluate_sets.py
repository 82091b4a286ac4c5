"""The set audit over the topics of a keyed group, as real tasks write them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.services.keyed_topics_world import RECEIPTS, A, B, KeyedTopicsWorld, travelled
from trimtab.apply.keys.chunks import handover_key
from trimtab.errors import ConfigError, MeasurementError, SchemaMismatch, ThinData
from trimtab.evaluate.key_history import SetAudit
from trimtab.evaluate.key_sets import SetAuditRules
from trimtab.services.evaluate_sets import SetAuditRequest, audit_topics


def audit(world: KeyedTopicsWorld, *, at_rest: bool = True, **asked: Any) -> SetAudit:
    rules = SetAuditRules(at_rest=at_rest)
    request = SetAuditRequest(topic="orders", group="pay", rules=rules, **asked)
    return audit_topics(world, request, receipts=RECEIPTS)


def kinds(found: SetAudit) -> list[tuple[str, bytes, int]]:
    return [(str(f.kind), f.key, f.at) for f in found.findings]


@pytest.mark.parametrize("has_input", [True, False])
def test_what_tasks_leave_behind_has_no_finding(*, has_input: bool) -> None:
    found = audit(travelled(has_input=has_input))

    assert found.findings == ()
    assert (found.keys, found.records, found.applied, found.chains) == (2, 6, 6, 6)
    assert (found.sets, found.adoptions, found.unsettled) == (3, 3, ())
    assert found.complete


def test_moves_between_two_runs_are_no_findings_of_the_second() -> None:
    assert audit(travelled(), run="r2").findings == ()


def test_a_record_that_no_task_applied_is_missing() -> None:
    world = travelled()
    world.append("orders.in", 1, A, b"x", (("tt-seq", (5).to_bytes(8, "big")),))

    assert kinds(audit(world)) == [("missing", A, 5)]
    assert audit(world, at_rest=False).findings == ()
    assert audit(world, at_rest=False).unsettled == (A,)


def test_a_record_that_the_handler_refuses_is_in_the_dead_letters_and_present() -> None:
    world = travelled()
    world.send(A, 0, 3, value=b"bad")
    world.send(A, 0, 3)
    world.work()

    found = audit(world)

    assert found.findings == ()
    assert found.dead == 1


def test_a_key_that_is_still_waiting_is_told_at_rest_only() -> None:
    world = travelled()
    world.move(B, 2, 0, 4)
    world.send(B, 0, 4)
    world.work_on(0)  # only the new side reads: it waits

    assert {kind for kind, key, _ in kinds(audit(world)) if key == B} == {
        *("waiting", "parked", "missing", "not_adopted", "old_owner")
    }
    assert audit(world, at_rest=False).unsettled == (B,)
    world.work_on(2)
    assert ("open_handover", B, 4) in kinds(audit(world))
    world.work()
    assert audit(world).findings == ()


def test_a_state_that_a_second_partition_owns_is_found() -> None:
    world = travelled()
    (owned,) = [r for r in world.logs["orders.state.pay"][2] if (r.key or b"")[1:2] == B][-1:]
    world.append("orders.state.pay", 0, owned.key, owned.value, ())

    assert [kind for kind, _, _ in kinds(audit(world))] == ["two_states"]


def test_records_written_before_the_gateway_came_belong_to_the_source() -> None:
    world = KeyedTopicsWorld()
    world.write_past_the_gateway(A, 1)
    world.send(A, 1)
    world.work()

    found = audit(world)

    assert found.findings == ()
    assert found.records == 2


def test_numbers_may_begin_anew_in_a_second_run() -> None:
    world = travelled()
    world.send(A, 0, 3, seq=1)
    world.send(A, 0, 3)
    world.work()

    assert audit(world).findings == ()


def test_receipts_of_other_groups_and_topics_are_left_alone() -> None:
    world = travelled()
    for record in list(world.logs[RECEIPTS][1]):
        text = record.value or b""
        for old, new in ((b'"pay"', b'"other"'), (b'"orders"', b'"payments"')):
            assert old in text
            world.append(RECEIPTS, 1, record.key, text.replace(old, new), ())

    assert audit(world).findings == ()


def test_a_cut_history_is_judged_from_its_first_receipts_on() -> None:
    world = travelled()
    world.starts[RECEIPTS] = {1: 2}
    world.starts["orders"] = {0: 1, 1: 3, 2: 3}

    found = audit(world)

    assert found.findings == ()
    assert not found.complete


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("orders", "Correct --topic"),
        ("orders.state.pay", "has not consumed orders by key"),
        ("orders.handover.pay", "has not consumed orders by key"),
        (RECEIPTS, "trimtab consume --keyed"),
    ],
)
def test_a_missing_topic_is_named(topic: str, hint: str) -> None:
    world = travelled()
    del world.logs[topic]

    with pytest.raises(ConfigError, match=f"no topic {topic}") as raised:
        audit(world)

    assert hint in (raised.value.hint or "")


def test_a_source_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no topic elsewhere"):
        audit(travelled(), source="elsewhere")


def test_the_data_topic_can_be_named_as_the_source() -> None:
    assert audit(travelled(), source="orders").findings == ()


def test_a_run_without_receipts_is_thin_data() -> None:
    with pytest.raises(ThinData, match="group pay in run r9 for topic orders"):
        audit(travelled(), run="r9")


def test_what_cannot_be_read_is_named() -> None:
    world = travelled()
    world.append("orders.handover.pay", 0, b"short", b"{}", ())
    with pytest.raises(MeasurementError, match=r"orders\.handover\.pay-0 cannot be read"):
        audit(world)

    world = travelled()
    world.append("orders.state.pay", 0, b"ka\0\0\0\0", b'{"v":9}', ())
    with pytest.raises(MeasurementError, match="changelog cannot be read"):
        audit(world)

    world = travelled()
    world.append(RECEIPTS, 0, b"a", b"no JSON", ())
    with pytest.raises(SchemaMismatch, match="offset 0 that is no receipt"):
        audit(world)


def test_a_handover_in_chunks_is_on_its_way_until_all_have_tombstones() -> None:
    world = travelled()
    for chunk in (0, 1):
        world.append("orders.handover.pay", 0, handover_key(B, 9, chunk), b"{}", ())
    world.append("orders.handover.pay", 0, handover_key(B, 9, 0), None, ())

    assert ("open_handover", B, 9) in kinds(audit(world))
