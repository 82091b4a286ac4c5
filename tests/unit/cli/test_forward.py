"""The flags of `trimtab forward`, what it would do, and what it did."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from trimtab.apply.records.kafka import forwarder as door
from trimtab.apply.records.kafka.forward_route import ForwardReport
from trimtab.cli.main import run
from trimtab.errors import ApplyError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import Broker, BrokerId, TopicPartition
from trimtab.plan.records.partitioner import Granularity
from trimtab.plan.records.ratios import Ratios
from trimtab.testing.fakes import FakeAdmin

BASE = ["forward", "--bootstrap-server", "here:9092", "--group", "g"]
REPORT = ForwardReport(
    taken=4,
    forwarded=3,
    committed=1,
    brokers={1: 2, 2: 1},
    partitions={TopicPartition("B", 0): 2, TopicPartition("B", 1): 1},
    ratios=Ratios(brokers=4 / 3, partitions=4 / 3),
)


@pytest.fixture(autouse=True)
def clusters(tmp_path, monkeypatch):
    """Two clusters in memory, `here` and `there`; no setting of the tester plays a part."""
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP_SERVER", "COMMAND_CONFIG", "CONFIG", "TOPIC_PREFIX"):
        monkeypatch.delenv(f"TRIMTAB_{name}", raising=False)
    found = {}
    for name in ("here", "there"):
        admin = FakeAdmin(brokers=[Broker(id=BrokerId(1)), Broker(id=BrokerId(2))], cluster=name)
        for topic in ("A", "A2", "B"):
            admin.create_topic(TopicSpec(name=topic, partitions=2, replication=1))
        found[f"{name}:9092"] = admin

    @contextmanager
    def opened(self):
        yield found[self.servers]

    monkeypatch.setattr(Cluster, "admin", opened)
    return found


@pytest.fixture
def opened(monkeypatch):
    """What would have been forwarded, instead of its being."""
    seen = []

    @contextmanager
    def open_forwarder(surveyed, source, target, **more):
        seen.append((surveyed.route, source.servers, target.servers))

        class Forwarder:
            report = REPORT

            def run(self, stop):
                if surveyed.route.records == 13:
                    raise ApplyError("in-0 offset 7 was refused")
                return REPORT

        yield Forwarder()

    monkeypatch.setattr(door, "open_forwarder", open_forwarder)
    return seen


def test_without_execute_it_says_what_it_would_do(opened, capsys):
    assert run([*BASE, "--from-topic", "A", "--to-topic", "B"]) == 0

    shown = capsys.readouterr()
    assert opened == []
    assert "1: 1, 2: 1" in shown.out
    assert "partitioner sqf per record, group g" in shown.out
    assert "Add --execute" in shown.err


def test_what_it_would_do_is_also_json(opened, capsys):
    run([*BASE, "--from-topic", "A", "--to-topic", "B", "--partitioner", "node", "--json"])

    assert json.loads(capsys.readouterr().out) == {
        "group": "g",
        "partitioner": "node",
        "granularity": "record",
        "topics": [{"from": "A", "partitions": 2, "to": "B", "leaders": {"0": 1, "1": 2}}],
    }


def test_the_flags_become_the_route(opened):
    flags = ["--from-topic", "A", "--from-topic", "A2", "--granularity", "batch", "--from-latest"]
    flags += ["--until-end", "--records", "9", "--to-bootstrap-server", "there:9092", "--execute"]
    assert run([*BASE, *flags]) == 0

    route, source, target = opened[0]
    assert (source, target) == ("here:9092", "there:9092")
    assert route.topics == {"A": "A", "A2": "A2"}
    assert (route.group, route.partitioner) == ("g", "sqf")
    assert route.options.granularity is Granularity.PER_BATCH
    assert (route.from_latest, route.until_end, route.records) == (True, True, 9)


def test_the_report_shows_both_ratios(opened, capsys):
    run([*BASE, "--from-topic", "A", "--to-topic", "B", "--execute"])

    assert capsys.readouterr().out.splitlines() == [
        "3 records forwarded of 4 taken; peak over mean: brokers 1.333, partitions 1.333",
        "by broker 1: 2, 2: 1",
    ]


def test_the_report_is_also_json(opened, capsys):
    run([*BASE, "--from-topic", "A", "--to-topic", "B", "--execute", "--json"])

    assert json.loads(capsys.readouterr().out) == {
        "taken": 4,
        "forwarded": 3,
        "brokers": {"1": 2, "2": 1},
        "partitions": {"B": {"0": 2, "1": 1}},
        "ratios": {"brokers": 4 / 3, "partitions": 4 / 3},
    }


def test_a_failure_is_reported_and_then_raised(opened, capsys):
    flags = ["--from-topic", "A", "--to-topic", "B", "--execute", "--records", "13", "--json"]

    assert run([*BASE, *flags]) == 5

    shown = capsys.readouterr()
    assert json.loads(shown.out)["forwarded"] == 3
    assert "offset 7 was refused" in shown.err


@pytest.mark.parametrize(
    ("flags", "code", "complaint"),
    [
        (["--from-topic", "A"], 2, "A would be forwarded to itself"),
        (["--from-topic", "A", "--to-topic", "X"], 2, "has no topic X"),
        (["--from-topic", "X", "--to-topic", "B"], 2, "has no topic X"),
        (["--from-topic", "A", "--from-topic", "A"], 2, "was given twice"),
        (
            ["--from-topic", "A", "--to-topic", "B", "--to-topic", "A2"],
            2,
            "1 --from-topic but 2 --to-topic were given",
        ),
        (["--from-topic", "A", "--to-command-config", "x"], 2, "requires --to-bootstrap-server"),
        (["--from-topic", "A", "--to-topic", "B", "--partitioner", "sqff"], 4, "sqff"),
    ],
)
def test_what_cannot_be_is_refused(opened, capsys, flags, code, complaint):
    assert run([*BASE, *flags, "--execute"]) == code

    assert complaint in capsys.readouterr().err
    assert opened == []
