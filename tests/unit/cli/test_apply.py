import json
from contextlib import contextmanager
from typing import Any

import pytest

from trimtab.cli import connection
from trimtab.cli.main import run
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.testing.fakes import FakeAdmin

LOADS: dict[str, Any] = {
    "v": 1,
    "capacity": 100,
    "assignment": {"orders": {"0": 0, "1": 0}},
    "steps": [{"loads": {"orders": {"0": 60, "1": 50}}}],
}


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path, monkeypatch):
    """No setting of the person who runs the tests plays a part, and no cluster may be asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRIMTAB_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("TRIMTAB_COMMAND_CONFIG", raising=False)
    monkeypatch.delenv("TRIMTAB_CONFIG", raising=False)

    def refuse(settings):
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr(connection, "admin_of", refuse)


@pytest.fixture
def loads(tmp_path):
    path = tmp_path / "loads.json"
    path.write_text(json.dumps(LOADS))
    return path


@pytest.fixture
def plan(tmp_path, loads, capsys):
    """A plan file for group g, made from the loads file."""
    path = tmp_path / "plan.json"
    assert run(["plan", "consumers", "--loads", str(loads), "--group", "g", "-o", str(path)]) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def live(monkeypatch):
    """A cluster in memory in which one member of group g reads both partitions of orders."""
    one = (BrokerId(1),)
    places = [
        Replicas(topic="orders", partition=n, leader=one[0], replicas=one, isr=one)
        for n in range(2)
    ]
    reader = Member(
        member_id="amy", client_id="", host="", partitions=frozenset(p.name for p in places)
    )
    admin = FakeAdmin(
        brokers=[Broker(id=one[0])],
        partitions=places,
        groups=[Group(name="g", state="STABLE", members=(reader,))],
    )

    @contextmanager
    def admin_of(settings):
        yield admin

    monkeypatch.setattr(connection, "admin_of", admin_of)
    return admin


def test_a_plan_is_shown_and_it_is_said_that_freshness_was_not_checked(plan, capsys):
    assert run(["apply", str(plan)]) == 0
    out, err = capsys.readouterr()
    assert "by trim for group g" in out
    assert "was not checked" in err


def test_a_plan_that_fits_the_loads_file_is_fresh(plan, loads, capsys):
    assert run(["apply", str(plan), "--loads", str(loads)]) == 0
    assert "The plan is fresh" in capsys.readouterr().err


def test_json_holds_the_plan_and_whether_it_is_fresh(plan, loads, capsys):
    assert run(["apply", str(plan), "--json"]) == 0
    unchecked = json.loads(capsys.readouterr().out)
    assert unchecked == {"v": 1, "plan": json.loads(plan.read_text()), "fresh": None}
    assert run(["apply", str(plan), "--json", "--loads", str(loads)]) == 0
    assert json.loads(capsys.readouterr().out)["fresh"] is True


def test_a_stale_plan_is_refused_with_exit_code_5_and_the_difference(plan, loads, capsys):
    loads.write_text(json.dumps({**LOADS, "assignment": {"orders": {"0": 0, "1": 1}}}))
    assert run(["apply", str(plan), "--json", "--loads", str(loads)]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert "orders-1 has another owner." in err
    assert 'hint: Run "trimtab plan consumers" again.' in err


def test_other_loads_do_not_make_a_plan_stale(plan, loads):
    loads.write_text(
        json.dumps({**LOADS, "steps": [{"loads": {"orders": {"0": 1, "1": 1}, "new": {"0": 1}}}]})
    )
    assert run(["apply", str(plan), "--loads", str(loads)]) == 0


def test_a_damaged_plan_is_refused_with_exit_code_5(plan, capsys):
    plan.write_text(plan.read_text().replace('"reason": "overload"', '"reason": "repack"'))
    assert run(["apply", str(plan)]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {plan}: the plan calls itself")


def test_half_a_plan_is_a_bad_file(plan, capsys):
    plan.write_text(plan.read_text()[:100])
    assert run(["apply", str(plan)]) == 2
    assert "the JSON ends too early" in capsys.readouterr().err


def test_execute_says_that_it_comes_later_and_does_nothing(plan, capsys):
    assert run(["apply", str(plan), "--execute"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "comes with a later release; nothing was done" in err


def test_a_measurement_cannot_say_whether_a_plan_is_fresh(plan, tmp_path, capsys):
    path = tmp_path / "measured.json"
    path.write_text(
        '{"v":1,"kind":"measurement","cluster":null,"from_ts":0,"to_ts":1,"window_s":1,'
        '"rejects":0,"partitions":[]}'
    )
    assert run(["apply", str(plan), "--json", "--loads", str(path)]) == 2
    assert "does not say who reads what" in capsys.readouterr().err


def test_a_plan_that_fits_the_live_group_is_fresh(plan, live, capsys):
    assert run(["apply", str(plan), "--bootstrap-server", "h:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fresh"] is True


def test_a_partition_added_since_makes_a_plan_stale(plan, live, capsys):
    live.add_partitions("orders", 3)
    assert run(["apply", str(plan), "--bootstrap-server", "h:1", "--json"]) == 5
    assert "orders-2 is new." in capsys.readouterr().err


def test_a_topic_deleted_since_makes_a_plan_stale(plan, live, capsys):
    live.delete_topic("orders")
    assert run(["apply", str(plan), "--bootstrap-server", "h:1", "--json"]) == 5
    assert "orders-0 is gone, orders-1 is gone." in capsys.readouterr().err


def test_a_group_that_has_gone_makes_a_plan_stale(plan, live, capsys):
    live.described.clear()
    assert run(["apply", str(plan), "--bootstrap-server", "h:1", "--json"]) == 5
    assert "orders-0 has no owner any more" in capsys.readouterr().err


def test_a_partition_that_another_member_took_makes_a_plan_stale(plan, live, capsys):
    group = live.described["g"]
    (reader,) = group.members
    zero, one = (TopicPartition("orders", n) for n in range(2))
    halves = [
        Member(member_id=name, client_id="", host="", partitions=frozenset({partition}))
        for name, partition in (("amy", zero), ("bob", one))
    ]
    assert reader.partitions == {zero, one}
    live.described["g"] = Group(name="g", state="STABLE", members=tuple(halves))
    assert run(["apply", str(plan), "--bootstrap-server", "h:1", "--json"]) == 5
    assert "orders-1 has another owner." in capsys.readouterr().err
