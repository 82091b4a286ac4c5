"""Questions to group coordinators while brokers are killed and started again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from tests import ROOT
from tests.kafka.ask_coordinators import GROUPS
from tests.kafka.streams import wait_until
from trimtab.local.cluster import LocalCluster
from trimtab.settings import load_settings

RESTARTS = 6
CALLS = 200
"""At least so many between the first kill and the sixth restart, a fifth before each later kill."""


def test_no_restart_of_a_broker_ends_a_process_that_asks_about_groups(tmp_path: Path) -> None:
    # brokers  1 ─x──1───x──1── …   killed and started in turn; a fresh cluster is asked first
    #          2 ───x──2──────x …
    with (
        LocalCluster(home=tmp_path, brokers=2, cache=load_settings().cache) as cluster,
        subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.kafka.ask_coordinators"),
                *(cluster.bootstrap_servers, "topic"),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as asking,
    ):
        assert asking.stdin
        assert asking.stdout
        fresh = answer(asking.stdout)["fresh"]
        assert fresh == {"groups": 0, "committed": {name: {} for name in GROUPS}}
        wait_until(lambda: is_whole(tally(asking)), within_s=180, what="all groups")
        begun = called = tally(asking)["calls"]
        for restart in range(RESTARTS):
            while called - begun < restart * CALLS / (RESTARTS - 1):
                called = tally(asking)["calls"]
            victim = restart % 2 + 1
            cluster.pause(victim)  # so that requests are under way when its connections fail
            tally(asking)
            cluster.kill(victim)
            tally(asking)
            cluster.start(victim)
            called = tally(asking)["calls"]
            wait_until(lambda: is_whole(tally(asking)), within_s=180, what="all groups again")
        wait_until(lambda: tally(asking)["stable"] == 2, within_s=180, what="both members")
        last = tally(asking)
        asking.stdin.close()
        assert asking.wait(30) == 0

    assert called - begun >= CALLS
    assert is_whole(last)


def tally(asking: subprocess.Popen[str]) -> dict[str, Any]:
    """What the other process has counted; it has asked at least once more by then."""
    assert asking.stdin
    assert asking.stdout
    print(file=asking.stdin, flush=True)
    return answer(asking.stdout)


def answer(stdout: IO[str]) -> dict[str, Any]:
    line = stdout.readline()
    assert line, "the process that asks has ended"
    found: dict[str, Any] = json.loads(line)
    return found


def is_whole(found: dict[str, Any]) -> bool:
    return bool(found["described"] == found["committed"] == len(GROUPS))
