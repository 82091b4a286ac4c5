"""Group mode: bins become members' partitions, answers are checked, and nobody is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.apply.consumers.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    GroupMember,
    GroupPlan,
    answer,
    answer_from,
    answer_to,
    answered,
    checked,
    fallback,
    request_from,
    request_to,
    settled,
)
from trimtab.errors import BadFile, ProtocolViolation
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.json_reader import parse

P = [TopicPartition("t", n) for n in range(12)]


def member(name: str, *owned: int, generation: int = -1) -> GroupMember:
    return GroupMember(
        member_id=f"id-{name}",
        client_id=name,
        owned=tuple(P[n] for n in owned),
        generation=generation,
    )


def plan(*bins: tuple[int, ...], loads: Mapping[int, float] | None = None) -> GroupPlan:
    return GroupPlan(
        version=7,
        assignment=Assignment({P[n]: c for c, bin_ in enumerate(bins) for n in bin_}),
        loads={P[n]: load for n, load in (loads or {}).items()},
    )


def numbers(shares: Mapping[str, tuple[TopicPartition, ...]]) -> dict[str, tuple[int, ...]]:
    return {m.removeprefix("id-"): tuple(p.partition for p in ps) for m, ps in shares.items()}


# ---------------------------------------------------------------- the plan's answer


def test_fresh_members_take_the_bins_in_the_order_of_their_client_ids() -> None:
    members = [member("c-10"), member("c-9"), member("c-2")]

    shares = answer(plan((0, 1), (2,), (3,)), members, P[:4])

    assert numbers(shares) == {"c-2": (0, 1), "c-9": (2,), "c-10": (3,)}


def test_a_bin_goes_to_the_member_that_owns_most_of_its_load() -> None:
    members = [member("a", 0, 1), member("b", 2)]

    shares = answer(plan((0, 1, 2), (3,), loads={0: 1, 1: 1, 2: 5, 3: 1}), members, P[:4])

    assert numbers(shares) == {"a": (3,), "b": (0, 1, 2)}


def test_a_partition_of_unknown_load_weighs_one() -> None:
    members = [member("a", 0, 1), member("b", 2)]

    shares = answer(plan((0, 1, 2), (3,)), members, P[:4])

    assert numbers(shares) == {"a": (0, 1, 2), "b": (3,)}


def test_members_beyond_the_bins_get_nothing() -> None:
    members = [member("a"), member("b", 0, 1), member("c")]

    shares = answer(plan((0, 1)), members, P[:2])

    assert numbers(shares) == {"a": (), "b": (0, 1), "c": ()}


def test_bins_beyond_the_members_are_dealt_out_to_the_least_loaded() -> None:
    #  a: 10          b: 4          left over: 3 and 2, then both are with b
    members = [member("a", 0), member("b", 1)]

    shares = answer(plan((0,), (1,), (2, 3), loads={0: 10, 1: 4, 2: 3, 3: 2}), members, P[:4])

    assert numbers(shares) == {"a": (0,), "b": (1, 2, 3)}


def test_a_partition_unknown_to_the_plan_goes_to_who_has_fewest_but_not_to_a_surplus_member() -> (
    None
):
    members = [member("a"), member("b"), member("c")]

    shares = answer(plan((0, 1, 2), (3,)), members, P[:6])

    assert numbers(shares) == {"a": (0, 1, 2), "b": (3, 4, 5), "c": ()}


def test_a_partition_unknown_to_the_plan_stays_where_it_is() -> None:
    members = [member("a", 0, 5), member("b", 1)]

    shares = answer(plan((0,), (1,)), members, [P[0], P[1], P[4], P[5]])

    assert numbers(shares) == {"a": (0, 5), "b": (1, 4)}


def test_a_partition_that_is_gone_is_given_to_nobody() -> None:
    shares = answer(plan((0, 1)), [member("a", 0, 1)], P[:1])

    assert numbers(shares) == {"a": (0,)}


def test_a_plan_without_any_bin_deals_out_by_count() -> None:
    shares = answer(plan(), [member("a"), member("b")], P[:3])

    assert numbers(shares) == {"a": (0, 2), "b": (1,)}


MEMBERS = st.lists(
    st.tuples(st.lists(st.integers(0, 11), unique=True), st.integers(-1, 3)), min_size=1, max_size=6
).map(lambda rows: [member(f"c-{i}", *o, generation=g) for i, (o, g) in enumerate(rows)])
PLANS = st.dictionaries(st.sampled_from(P), st.integers(0, 8)).map(
    lambda owners: GroupPlan(version=1, assignment=Assignment(owners))
)
PARTITIONS = st.sets(st.sampled_from(P))


@given(PLANS, MEMBERS, PARTITIONS, st.randoms())
def test_whatever_members_claim_each_partition_has_one_owner_and_order_is_of_no_account(
    plan, members, partitions, rng
) -> None:
    shares = answer(plan, members, partitions)

    assert checked(shares, members, partitions) == shares
    rng.shuffle(members)
    assert answer(plan, members, sorted(partitions, reverse=True)) == shares


@given(MEMBERS, PARTITIONS)
def test_the_fallback_gives_each_partition_one_owner_and_moves_nothing_that_is_owned(
    members, partitions
) -> None:
    shares = fallback(members, partitions)

    assert checked(shares, members, partitions) == shares
    for m in settled(members):
        assert set(m.owned) & partitions <= set(shares[m.member_id])


# ---------------------------------------------------------------- the fallback


def test_the_fallback_gives_the_rest_to_who_has_fewest() -> None:
    shares = fallback([member("a", 0, 1, 2), member("b", 3)], P[:6])

    assert numbers(shares) == {"a": (0, 1, 2), "b": (3, 4, 5)}


@given(MEMBERS, PARTITIONS)
def test_before_the_first_plan_counts_differ_by_one_at_most_and_then_nothing_moves(
    members, partitions
) -> None:
    unplanned = [replace(m, planned=False) for m in members]
    shares = fallback(unplanned, partitions)
    again = [replace(m, owned=shares[m.member_id]) for m in unplanned]

    assert checked(shares, members, partitions) == shares
    counts = sorted(map(len, shares.values()))
    assert counts[-1] - counts[0] <= 1
    assert fallback(again, partitions) == shares


def test_members_that_join_one_by_one_before_the_first_plan_share_the_work() -> None:
    alone = fallback([replace(member("a"), planned=False)], P[:6])
    assert numbers(alone) == {"a": (0, 1, 2, 3, 4, 5)}
    first = replace(member("a", *range(6)), planned=False)

    shares = fallback([first, *(replace(member(x), planned=False) for x in "bc")], P[:6])

    assert {len(share) for share in shares.values()} == {2}
    assert numbers(shares)["a"] == (0, 1)


def test_of_two_that_claim_a_partition_the_later_generation_owns_it() -> None:
    members = [member("a", 0, 1, generation=4), member("b", 1, 2, generation=5)]

    assert numbers({m.member_id: m.owned for m in settled(members)}) == {"a": (0,), "b": (1, 2)}


def test_of_two_that_claim_a_partition_with_equal_right_neither_owns_it() -> None:
    members = [member("a", 0, 1, generation=4), member("b", 1, generation=4)]

    assert numbers({m.member_id: m.owned for m in settled(members)}) == {"a": (0,), "b": ()}
    assert numbers(fallback(members, P[:2])) == {"a": (0,), "b": (1,)}


def test_the_fallback_gives_a_topic_only_to_who_reads_it() -> None:
    only_u = GroupMember(member_id="u", client_id="u", topics=frozenset({"u"}))
    both = GroupMember(member_id="tu", client_id="tu", topics=frozenset({"t", "u"}))

    shares = fallback([only_u, both], [*P[:2], TopicPartition("u", 0), TopicPartition("v", 0)])

    assert shares == {"u": (TopicPartition("u", 0),), "tu": (P[0], P[1])}


def test_a_group_without_members_is_refused() -> None:
    with pytest.raises(ValueError, match="without members"):
        fallback([], P)


# ---------------------------------------------------------------- the check


@pytest.mark.parametrize(
    ("shares", "named"),
    [
        ({"id-a": (P[0],), "id-b": (P[0], P[1])}, "assigned twice: t-0"),
        ({"id-a": (P[0], P[0], P[1])}, "assigned twice: t-0"),
        ({"id-a": (P[0],)}, "not assigned: t-1"),
        ({"id-a": (P[0], P[1], P[5])}, "not partitions of this group: t-5"),
        ({"id-a": (P[0],), "id-z": (P[1],)}, "unknown members: id-z"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_with_what_is_wrong(shares, named) -> None:
    with pytest.raises(ProtocolViolation, match=named):
        checked(shares, [member("a"), member("b")], P[:2])


def test_an_answer_may_not_give_a_topic_to_who_does_not_read_it() -> None:
    other = GroupMember(member_id="u", client_id="u", topics=frozenset({"u"}))

    with pytest.raises(ProtocolViolation, match="not subscribed: t-0"):
        checked({"u": (P[0],)}, [other], P[:1])


def test_a_member_that_the_answer_leaves_out_gets_nothing() -> None:
    shares = checked({"id-a": (P[1], P[0])}, [member("a"), member("b")], P[:2])

    assert numbers(shares) == {"a": (0, 1), "b": ()}


# ---------------------------------------------------------------- as JSON


def test_a_request_reads_as_it_was_written() -> None:
    request = AssignmentRequest(
        group="g", generation=3, members=(member("a", 0), member("b")), partitions=tuple(P[:2])
    )

    wire = request_to(request)

    assert wire == {
        "v": 1,
        "group": "g",
        "generation": 3,
        "members": [
            {"member_id": "id-a", "client_id": "a", "owned": [{"topic": "t", "partition": 0}]},
            {"member_id": "id-b", "client_id": "b", "owned": []},
        ],
        "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
    }
    assert request_from(parse(dumps(wire), origin="wire")) == request


def test_an_answer_reads_as_it_was_written() -> None:
    request = AssignmentRequest(
        group="g", generation=3, members=(member("a", 0), member("b")), partitions=tuple(P[:2])
    )
    reply = answered(plan((0,), (1,)), request)

    wire = answer_to(reply)

    assert wire == {
        "v": 1,
        "version": 7,
        "assignment": {
            "id-a": [{"topic": "t", "partition": 0}],
            "id-b": [{"topic": "t", "partition": 1}],
        },
    }
    assert (
        answer_from(parse(dumps(wire), origin="wire"))
        == reply
        == AssignmentAnswer(7, {"id-a": (P[0],), "id-b": (P[1],)})
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"members": []}, "members: has no member"),
        ({"members": [request_member := {"member_id": "m", "client_id": "c", "owned": []}] * 2},
         "members: has duplicates"),
        ({"partitions": [{"topic": "t", "partition": -1}]}, "partition: is negative"),
        ({"v": 2}, "unknown version 2"),
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused_with_its_place(change, named) -> None:
    wire = {"v": 1, "group": "g", "generation": 1, "members": [request_member], "partitions": []}

    with pytest.raises(BadFile, match=named):
        request_from(parse(dumps(wire | change), origin="wire"))
