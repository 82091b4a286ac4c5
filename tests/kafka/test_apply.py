"""`trimtab apply --execute`: a running controller carries a plan out, holds it, and undoes it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.live_group import LOW, WITHIN_S, LiveGroup, live_group
from tests.kafka.streams import wait_until
from trimtab.apply.kafka.plan_topic import PlanTopic
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.journal import TRANSITIONS, JournalEntry, PlanState
from trimtab.model.journal_codec import journal_from
from trimtab.model.json_reader import parse


@pytest.fixture
def group(cluster: LocalCluster, tmp_path: Path) -> Iterator[LiveGroup]:
    with live_group(cluster, tmp_path) as made:
        yield made


def trimtab(group: LiveGroup, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trimtab.cli.main", *words, "--bootstrap-server", group.bootstrap],
        env=group.env,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def planned(group: LiveGroup, folder: Path, consumers: int) -> tuple[Path, dict[str, Any]]:
    """A plan that spreads the group, as it is now, over so many consumers."""
    loads, plan = folder / "loads.json", folder / f"plan-{consumers}.json"
    numbers = {str(n): LOW for n in range(group.partitions)}
    capacity = LOW * group.partitions / consumers
    loads.write_text(
        json.dumps(
            {
                "v": 1,
                "unit": "records/s",
                "capacity": capacity,
                "steps": [{"loads": {group.topic: numbers}}],
            }
        )
    )
    made = trimtab(
        group,
        *("plan", "consumers", "--group", group.group, "--loads", str(loads)),
        *("--topic", group.topic, "-o", str(plan)),
    )
    assert made.returncode == 0, made.stderr
    document: dict[str, Any] = json.loads(plan.read_text())
    assert document["after"]["consumers"] == consumers
    return plan, document


def journal(group: LiveGroup) -> list[JournalEntry]:
    """Every entry that was ever written, in order."""
    return [
        journal_from(parse(value, origin="journal"))
        for _, _, key, value in group.records(group.own.plans, 1)
        if (key or b"").endswith(b"/state")
    ]


def check_journal(group: LiveGroup, plan: str, *ends: PlanState) -> None:
    own = [entry for entry in journal(group) if entry.plan == plan]
    assert tuple(e.state for e in own if e.ended) == ends, own
    for before, after in pairwise(own):
        assert after.state in TRANSITIONS[before.state], own


def test_a_plan_is_carried_out_held_evaluated_and_undone_without_breaking_order(
    group: LiveGroup, tmp_path: Path
) -> None:
    group.send(1)
    group.run()
    group.settle(1)
    group.mark()
    with group.under_load():
        plan, document = planned(group, tmp_path, 2)
        shown = trimtab(group, "apply", str(plan))
        assert shown.returncode == 0, shown.stderr
        assert "The plan is fresh" in shown.stderr
        assert not journal(group), "looking at a plan changes nothing"

        done = trimtab(group, "apply", str(plan), "--execute", "--hold", "2m", "--json")

        assert done.returncode == 0, done.stderr
        entry = json.loads(done.stdout)["journal"]
        assert (entry["state"], entry["step"]) == ("done", entry["of"])
        spread = group.settle(2)
        wanted = document["assignment"][group.topic]
        assert {str(p.partition): c for p, c in spread.assignment.items()} == wanted
        wait_until(
            lambda: any("is held for" in d.reason for d in group.decisions()),
            what="a decision that leaves the plan alone",
        )
        assert group.settle(2) == spread
        judged = trimtab(group, "evaluate", "plan", document["id"], "--json")
        assert judged.returncode == 0, judged.stderr
        assert json.loads(judged.stdout)["error"]["consumers"] == 0

        again = trimtab(group, "apply", str(plan), "--execute")
        assert again.returncode == 5, again.stderr
        assert "has another owner" in again.stderr

        undone = trimtab(group, "apply", document["id"], "--rollback", "--execute", "--hold", "0s")
        assert undone.returncode == 0, undone.stderr
        group.settle(1)
    check_journal(group, document["id"], PlanState.DONE, PlanState.ROLLED_BACK)
    group.judge()


def test_a_controller_killed_in_the_middle_of_a_plan_is_replaced_and_the_plan_is_finished(
    group: LiveGroup, cluster: LocalCluster, tmp_path: Path
) -> None:
    group.send(1)
    first = group.run()
    group.settle(1)
    group.mark()
    plan, document = planned(group, tmp_path, 4)
    with group.under_load(), closing(PlanTopic(Cluster(group.bootstrap, topics=group.own))) as seen:
        words = [sys.executable, "-m", "trimtab.cli.main", "apply", str(plan), "--execute"]
        words += ["--bootstrap-server", group.bootstrap]
        with (tmp_path / "apply.log").open("wb") as log:
            applying = subprocess.Popen(words, env=group.env, stdout=log, stderr=log)
        try:

            def is_running() -> bool:
                seen.wait(0.1)
                entry = seen.newest(document["id"])
                return entry is not None and entry.state is not PlanState.MADE

            wait_until(is_running, what="the plan under way")
            first.kill()
            group.run()

            assert applying.wait(WITHIN_S) == 0, (tmp_path / "apply.log").read_text()
        finally:
            applying.kill()
        spread = group.settle(4)
        wanted = document["assignment"][group.topic]
        assert {str(p.partition): c for p, c in spread.assignment.items()} == wanted
    check_journal(group, document["id"], PlanState.DONE)
    group.judge()


def test_without_a_controller_a_plan_is_refused_and_nothing_is_written(
    group: LiveGroup, tmp_path: Path
) -> None:
    group.send(1)
    run = group.run()
    group.settle(1)
    plan, _ = planned(group, tmp_path, 2)
    before = len(list(group.records(group.own.plans, 1)))
    assert run.end() == 0

    def refused() -> bool:
        answer = trimtab(group, "apply", str(plan), "--execute")
        assert answer.returncode == 5, answer.stderr
        return f'"trimtab run --group {group.group}' in answer.stderr

    wait_until(refused, what="a group without a controller")  # brokers remember it for a moment
    assert len(list(group.records(group.own.plans, 1))) == before
