import json
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.golden.samples import readme_plan
from trimtab.apply.kafka import plan_topic
from trimtab.cli.main import run
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan_codec import plan_id
from trimtab.services import apply as service
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

    monkeypatch.setattr(Cluster, "admin", refuse)


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

    monkeypatch.setattr(Cluster, "admin", admin_of)
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
    assert err.startswith(f"error: {plan}: the plan has the id")


def test_half_a_plan_is_a_bad_file(plan, capsys):
    plan.write_text(plan.read_text()[:100])
    assert run(["apply", str(plan)]) == 2
    assert "the JSON ends too early" in capsys.readouterr().err


class Journal:
    """`trimtab.plans` in memory; `answers` are the entries that a controller would write."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.kept, self.entries, self.sent = {}, {}, []
        self.orders = []

    def refresh(self):
        pass

    def close(self):
        pass

    def newest(self, name):
        return self.entries.get(name)

    def keep(self, plan, entry):
        self.kept[entry.plan] = plan
        self.write(entry)

    def write(self, entry):
        self.entries[entry.plan] = entry
        self.sent.append(entry.state)

    def wait(self, _seconds):
        if self.answers and self.entries:
            name, (state, step, why) = next(iter(self.entries)), self.answers.pop(0)
            self.entries[name] = replace(self.entries[name], state=state, step=step, why=why)


@pytest.fixture
def journal(monkeypatch, live):
    """A controller that leads group g and carries out what it is asked for."""
    running, done = (PlanState.RUNNING, 0, ""), (PlanState.DONE, 1, "")
    made = Journal([running, done])
    controller = Member(member_id="c", client_id="", host="", partitions=frozenset())
    name = "trimtab-controller-g"
    live.described[name] = Group(name=name, state="STABLE", members=(controller,))
    monkeypatch.setattr(plan_topic, "PlanTopic", lambda _: made)
    monkeypatch.setattr(
        plan_topic, "deliver", lambda _, records, **_within: made.orders.extend(records)
    )
    monkeypatch.setenv("TRIMTAB_BOOTSTRAP_SERVER", "live:9092")
    return made


def test_execute_hands_the_plan_to_the_controller_and_waits_for_its_journal(plan, journal, capsys):
    assert run(["apply", str(plan), "--execute", "--hold", "1m", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    [(topic, partition, _, value)] = journal.orders
    order = json.loads(value)
    assert (topic, partition) == ("trimtab.control.g", 0)
    assert (order["type"], order["plan"], order["hold_s"]) == ("plan", said["plan"]["id"], 60)
    assert order["expires_ts"] > order["ts"]
    assert (said["journal"]["state"], said["journal"]["step"]) == ("done", 1)
    assert journal.sent == [PlanState.MADE]
    assert list(journal.kept) == [said["plan"]["id"]]


def test_without_execute_nothing_is_ordered(plan, journal, capsys):
    assert run(["apply", str(plan)]) == 0
    assert (journal.orders, journal.kept) == ([], {})
    assert "The plan is fresh" in capsys.readouterr().err


def test_execute_without_a_controller_is_refused_and_names_run(plan, journal, live, capsys):
    live.described.pop("trimtab-controller-g")
    assert run(["apply", str(plan), "--execute"]) == 5
    assert (journal.orders, journal.kept) == ([], {})
    assert "trimtab run --group g" in capsys.readouterr().err


def test_execute_of_a_plan_for_other_owners_is_refused_before_anybody_is_asked(
    plan, journal, live, capsys
):
    two = [
        Member(
            member_id=n, client_id="", host="", partitions=frozenset({TopicPartition("orders", i)})
        )
        for i, n in enumerate("ab")
    ]
    live.described["g"] = Group(name="g", state="STABLE", members=tuple(two))
    assert run(["apply", str(plan), "--execute"]) == 5
    assert (journal.orders, journal.kept) == ([], {})
    assert "orders-1 has another owner" in capsys.readouterr().err


def test_what_the_controller_gives_as_reason_is_the_error(plan, journal, capsys):
    journal.answers = [(PlanState.FAILED, 0, "orders-4 is new.")]
    assert run(["apply", str(plan), "--execute"]) == 5
    assert "orders-4 is new.\n" in capsys.readouterr().err


def test_a_plan_under_way_is_followed_and_not_ordered_again(plan, journal, capsys):
    name = json.loads(plan.read_text())["id"]
    journal.entries[name] = JournalEntry(plan=name, state=PlanState.RUNNING, step=0, of=1, ts=1)
    journal.answers = [(PlanState.DONE, 1, "")]
    assert run(["apply", str(plan), "--execute"]) == 0
    assert journal.orders == []


def test_execute_with_a_loads_file_is_refused(plan, journal, loads, capsys):
    assert run(["apply", str(plan), "--execute", "--loads", str(loads)]) == 2
    assert journal.orders == []


def test_a_rollback_is_the_inverse_and_marks_the_plan_as_rolled_back(plan, journal, live, capsys):
    orders = [TopicPartition("orders", n) for n in range(2)]
    after = json.loads(plan.read_text())["assignment"]["orders"]
    owned: dict[int, set[TopicPartition]] = {}
    for p in orders:
        owned.setdefault(after[str(p.partition)], set()).add(p)
    members = tuple(
        Member(member_id=str(c), client_id="", host="", partitions=frozenset(ps))
        for c, ps in owned.items()
    )
    live.described["g"] = Group(name="g", state="STABLE", members=members)

    assert run(["apply", str(plan), "--rollback", "--execute", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["plan"]["planner"] == "rollback"
    assert said["plan"]["params"]["rollback_of"] == json.loads(plan.read_text())["id"]
    assert len(set(said["plan"]["assignment"]["orders"].values())) == 1
    assert journal.sent == [PlanState.MADE, PlanState.ROLLED_BACK]


def test_an_id_without_a_cluster_is_named(capsys):
    assert run(["apply", "7f3a9c01d2e4"]) == 2
    assert "no cluster to look for a plan of that id" in capsys.readouterr().err


def test_an_id_that_no_cluster_keeps_is_named(journal, capsys):
    assert run(["apply", "7f3a9c01d2e4"]) == 2
    assert "has no plan of that id" in capsys.readouterr().err


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
    assert "orders-0 was deleted, orders-1 was deleted." in capsys.readouterr().err


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


def test_an_order_that_no_controller_takes_is_cancelled_and_nothing_is_moved(
    plan, journal, monkeypatch, capsys
):
    journal.answers = []
    monkeypatch.setattr(service, "_ANSWER_S", 0.0)
    monkeypatch.setattr(service, "_GRACE_S", 0.0)

    assert run(["apply", str(plan), "--execute"]) == 5

    assert journal.sent == [PlanState.MADE, PlanState.CANCELLED]
    assert "nothing was moved" in capsys.readouterr().err


def test_a_plan_that_takes_longer_than_the_timeout_goes_on_without_us(plan, journal, capsys):
    journal.answers = [(PlanState.RUNNING, 0, "")]

    assert run(["apply", str(plan), "--execute", "--timeout", "1ms"]) == 5

    assert journal.sent == [PlanState.MADE]
    assert "it goes on" in capsys.readouterr().err


def test_an_apply_that_was_suspended_does_not_cancel_a_plan_that_was_done(
    plan, journal, monkeypatch, capsys
):
    monkeypatch.setattr(service, "_ANSWER_S", 0.0)
    monkeypatch.setattr(service, "_GRACE_S", 0.0)
    monkeypatch.setattr(journal, "wait", lambda _: None)  # it has seen nothing
    name = json.loads(plan.read_text())["id"]
    done = JournalEntry(plan=name, state=PlanState.DONE, step=1, of=1, ts=1)
    now = iter([None, done])
    monkeypatch.setattr(service, "_newest", lambda *_: next(now))

    assert run(["apply", str(plan), "--execute"]) == 0

    assert journal.sent == [PlanState.MADE]
    assert "done, 1 of 1 moves" in capsys.readouterr().err


def test_a_plan_that_someone_else_has_just_ordered_is_followed(plan, journal, monkeypatch):
    name = json.loads(plan.read_text())["id"]
    running = JournalEntry(plan=name, state=PlanState.RUNNING, step=0, of=1, ts=1)
    done = replace(running, state=PlanState.DONE, step=1)
    monkeypatch.setattr(service, "_newest", lambda *_: running)
    monkeypatch.setattr(journal, "wait", lambda _: journal.entries.update({name: done}))

    assert run(["apply", str(plan), "--execute"]) == 0

    assert (journal.orders, journal.sent) == ([], [])


def test_a_timeout_before_the_start_says_that_the_plan_was_not_started(plan, journal, capsys):
    journal.answers = []

    assert run(["apply", str(plan), "--execute", "--timeout", "1ms"]) == 5

    assert "has not started plan" in capsys.readouterr().err


def test_a_timeout_without_a_controller_names_run(plan, journal, live, capsys):
    name = json.loads(plan.read_text())["id"]
    journal.entries[name] = JournalEntry(plan=name, state=PlanState.RUNNING, step=0, of=1, ts=1)
    journal.answers = []
    live.described.pop("trimtab-controller-g")

    assert run(["apply", str(plan), "--execute", "--timeout", "1ms"]) == 5

    err = capsys.readouterr().err
    assert "no controller runs group g now" in err
    assert "trimtab run --group g" in err


@pytest.mark.parametrize("state", [s for s in PlanState if s is not PlanState.FAILED])
def test_a_plan_that_was_ordered_again_after_its_rollback_is_not_marked(journal, state):
    given = readme_plan("trim", group="g")
    later = JournalEntry(plan=plan_id(given), state=state, step=0, of=1, ts=3)
    journal.entries[later.plan] = later
    undone = JournalEntry(plan="0" * 12, state=PlanState.DONE, step=1, of=1, ts=2)

    service._mark_undone(journal, Cluster("nowhere:1"), given, by=undone)

    assert journal.sent == []


def test_a_plan_is_also_shown_as_a_page(plan, tmp_path, capsys):
    assert run(["apply", str(plan), "--report", str(tmp_path / "page.html")]) == 0

    assert "page.html" in capsys.readouterr().err
    assert "plan for consumers of orders" in (tmp_path / "page.html").read_text()
