"""Consumers as processes: real ones, small and quick."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from trimtab.apply.consumers.backends import processes
from trimtab.apply.consumers.backends.crashes import Crashes
from trimtab.apply.consumers.backends.processes import ProcessBackend
from trimtab.errors import ApplyError
from trimtab.local.processes import ProcessState, process_state, spawn_announced
from trimtab.observe.clock import wait_until

DEADLINE_S = 30.0

# Ends after a minute by itself, whatever the tests have forgotten.
WAIT = "i=0; while [ $((i += 1)) -lt 1200 ]; do sleep 0.05; done"
# Says that it is up, then ends at SIGTERM, as a consumer does after its batch.
GENTLE = f"trap 'echo bye; exit 0' TERM; echo up; {WAIT}"
DEAF = f"trap '' TERM; echo up; {WAIT}"


def _shell(script: str) -> Callable[[int], list[str]]:
    return lambda index: ["/bin/sh", "-c", script, f"consumer-{index}"]


_until = partial(wait_until, within_s=DEADLINE_S, every_s=0.01)


def _up(folder: Path, *consumers: int) -> None:
    """Waits until the programs have set their traps."""
    logs = [folder / f"consumer-{index}.log" for index in consumers]
    _until(lambda: all(log.exists() and "up" in log.read_text() for log in logs))


def _pid(identity: str) -> int:
    return int(identity.partition(" ")[0])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose consumers are gone when the test is over."""
    yield tmp_path
    backend = ProcessBackend(_shell("exit"), tmp_path)
    for index in backend.running():
        backend.kill(index)


def test_created_consumers_live_each_with_an_identity_and_a_log_of_its_own(folder):
    backend = ProcessBackend(_shell('echo "up as $0"; ' + GENTLE), folder)

    backend.create({0, 2})
    running = backend.running()
    _up(folder, 0, 2)

    assert list(running) == [0, 2]
    assert len(set(running.values())) == 2
    assert "up as consumer-2" in (folder / "consumer-2.log").read_text()
    assert os.getsid(_pid(running[0])) == _pid(running[0]) != os.getsid(0)


def test_creating_again_starts_only_what_is_missing(folder):
    backend = ProcessBackend(_shell(GENTLE), folder)
    backend.create({0})
    before = backend.running()

    backend.create({0, 1})
    backend.create({0, 1})

    assert list(backend.running()) == [0, 1]
    assert backend.running()[0] == before[0]


def test_two_controllers_at_once_start_one_consumer(folder):
    backends = [ProcessBackend(_shell(GENTLE), folder) for _ in range(4)]
    threads = [threading.Thread(target=b.create, args=({0, 1},)) for b in backends]
    with capture_logs() as said:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [s["consumer"] for s in said if s["event"] == "consumer_started"] == [0, 1]
    assert backends[0].running() == backends[3].running()


def test_another_controller_finds_the_living_again_and_can_end_them(folder):
    program = f"""
        from pathlib import Path
        from trimtab.apply.consumers.backends.processes import ProcessBackend
        ProcessBackend(lambda i: ["/bin/sh", "-c", {GENTLE!r}], Path({str(folder)!r})).create([3])
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
    backend = ProcessBackend(_shell(GENTLE), folder)
    found = backend.running()

    backend.kill(3)

    assert list(found) == [3]
    assert not backend.running()


def test_a_controller_killed_right_after_the_fork_leaves_no_consumer_unknown(folder):
    # The starter dies at once, before it could write anything: the process announces itself.
    program = f"""
        import os, signal
        from pathlib import Path
        from trimtab.local import processes
        from trimtab.apply.consumers.backends.processes import ProcessBackend
        processes._state_and_start = lambda pid: os.kill(os.getpid(), signal.SIGKILL)
        ProcessBackend(lambda i: ["/bin/sh", "-c", {GENTLE!r}], Path({str(folder)!r})).create([0])
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    backend = ProcessBackend(_shell(GENTLE), folder)

    with capture_logs() as said:
        backend.create({0})

    assert killed.returncode == -signal.SIGKILL
    assert [s["event"] for s in said] == []
    assert list(backend.running()) == [0]


def test_the_lock_is_not_kept_by_a_consumer(folder):
    ProcessBackend(_shell(GENTLE), folder).create({0})

    with (folder / "consumers.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_consumer_that_dies_by_itself_vanishes_and_its_last_log_lines_are_logged(folder):
    until_told = 'until [ -e "die" ]; do sleep 0.05; done'
    backend = ProcessBackend(_shell(f"{until_told}; echo out of cheese; exit 3"), folder)
    backend.create({0})
    (folder / "die").touch()

    with capture_logs() as said:
        _until(lambda: not backend.running())

    [death] = [s for s in said if s["event"] == "consumer_died"]
    assert death["consumer"] == 0
    assert death["last_log_lines"][-1] == "out of cheese"


AT_A_RECORD = (
    "echo 'orders-0, offset 17' > $0.record; until [ -e die ]; do sleep 0.05; done; rm die"
)


def _dies(backend: ProcessBackend, folder: Path, consumer: int) -> list[dict[str, object]]:
    """Starts a consumer and lets it die; returns what is logged."""
    backend.create({consumer})
    _until((folder / f"consumer-{consumer}.record").exists)
    (folder / "die").touch()
    with capture_logs() as said:
        _until(lambda: not backend.running())
    return [dict(s) for s in said]


def test_consumers_that_die_at_one_record_are_paused_and_the_record_is_named(folder):
    backend = ProcessBackend(
        _shell(AT_A_RECORD), folder, crashes=Crashes(first_s=1000, most_s=1000)
    )

    [first] = _dies(backend, folder, 0)
    [second] = _dies(backend, folder, 1)  # whoever reads the partition meets it

    assert (first["event"], first["record"]) == ("consumer_died", "orders-0, offset 17")
    assert second["times"] == 2
    with pytest.raises(
        ApplyError, match=r"Consumer 2 .* died 2 times at record orders-0, offset 17\. The next"
    ):
        backend.create({2})
    assert not backend.running()


def test_a_consumer_that_dies_soon_after_its_start_again_and_again_is_paused(folder):
    backend = ProcessBackend(_shell("echo no"), folder, crashes=Crashes(first_s=1000, most_s=1000))
    for _ in range(2):
        with suppress(ApplyError):  # it may be gone before `create` returns
            backend.create({0})
        _until(lambda: not backend.running())

    with pytest.raises(ApplyError, match=r"died 2 times soon after its start \(consumer 0\)"):
        backend.create({0})


def test_the_measuring_process_is_not_called_a_consumer(folder):
    backend = ProcessBackend(_shell(GENTLE), folder, kind="measuring")
    with capture_logs() as said:
        backend.create({0})
        _until(lambda: "up" in (folder / "measuring-0.log").read_text())
        backend.remove({0})

    assert [s["event"] for s in said] == ["measuring_started", "measuring_removed"]
    assert not any("consumer" in s for s in said)
    assert not list(folder.glob("consumer-*"))


def test_why_a_consumer_ended_is_known_until_another_one_is_started(folder):
    script = "echo up; echo 'error: There is no topic orders.'; echo 'hint: Create it.'; exit 2"
    backend = ProcessBackend(_shell(script), folder)

    with suppress(ApplyError):  # it may be gone before it was seen
        backend.create({0})
    _until(lambda: not backend.running())
    _until(backend.exit_reasons)

    assert backend.exit_reasons() == {0: "error: There is no topic orders."}
    other = ProcessBackend(_shell(GENTLE), folder)
    other._reasons.update(backend.exit_reasons())
    other.create({0})
    assert not other.exit_reasons()


def test_a_consumer_that_is_dead_before_create_returns_is_no_success(folder, monkeypatch):
    def spawned_and_gone(*args, **kwargs):
        process = spawn_announced(*args, **kwargs)
        _until(lambda: process_state(process) is ProcessState.DEAD)
        return process

    monkeypatch.setattr(processes, "spawn_announced", spawned_and_gone)
    backend = ProcessBackend(_shell("echo out of cheese; exit 3"), folder)

    with pytest.raises(ApplyError, match="Consumer 0 exited while starting: out of cheese"):
        backend.create({0})

    assert not backend.running()


def test_a_program_that_does_not_exist_is_told_by_its_log(folder):
    backend = ProcessBackend(lambda index: ["/nowhere/trimtab"], folder)

    with capture_logs() as said:
        # On a busy machine it may be gone before `create` returns, which then says so.
        with suppress(ApplyError):
            backend.create({0})
        _until(lambda: not backend.running())

    [death] = [s for s in said if s["event"] == "consumer_died"]
    assert "No such file" in " ".join(death["last_log_lines"])


def test_a_consumer_created_after_its_death_is_another_one(folder):
    backend = ProcessBackend(_shell(GENTLE), folder)
    backend.create({0})
    first = backend.running()[0]
    backend.kill(0)

    backend.create({0})

    assert backend.running()[0] != first


def test_a_stranger_under_the_same_pid_is_not_taken_for_a_consumer(folder):
    stranger = subprocess.Popen(["sleep", "60"])
    file = folder / "consumer-0.json"
    file.write_text(json.dumps({"v": 1, "pid": stranger.pid, "started": "another time"}))
    backend = ProcessBackend(_shell(GENTLE), folder)

    backend.kill(0)
    backend.remove({0})

    assert not backend.running()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_removing_lets_a_consumer_finish(folder):
    backend = ProcessBackend(_shell(GENTLE), folder)
    backend.create({0, 1})
    _up(folder, 0, 1)

    backend.remove({1, 7})

    assert list(backend.running()) == [0]
    assert (folder / "consumer-1.log").read_text().endswith("bye\n")


def test_a_look_while_a_consumer_leaves_does_not_call_it_dead(folder):
    backend = ProcessBackend(_shell(GENTLE), folder)
    backend.create({0})
    _up(folder, 0)

    with capture_logs() as said:
        leaving = threading.Thread(target=backend.remove, args=({0},))
        leaving.start()
        _until(lambda: not backend.running())
        leaving.join()

    assert [s["event"] for s in said] == ["consumer_removed"]


def test_removing_never_forces_and_names_who_stayed(folder):
    scripts = {0: DEAF, 1: GENTLE}
    backend = ProcessBackend(
        lambda index: ["/bin/sh", "-c", scripts[index]], folder, patience_s=1.0
    )
    backend.create({0, 1})
    _up(folder, 0, 1)
    pid = _pid(backend.running()[0])

    with pytest.raises(ApplyError, match=rf"consumer 0 \(pid {pid}, running\)"):
        backend.remove({0, 1})

    assert list(backend.running()) == [0]
    with capture_logs() as said:
        os.kill(pid, signal.SIGKILL)
        _until(lambda: not backend.running())
    assert [s["event"] for s in said] == ["consumer_died"]


def test_killing_works_on_a_paused_consumer_and_returns_when_it_is_gone(folder):
    backend = ProcessBackend(_shell(DEAF), folder)
    backend.create({0})
    pid = _pid(backend.running()[0])
    os.kill(pid, signal.SIGSTOP)
    paused = backend.running()

    backend.kill(0)

    assert list(paused) == [0]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not backend.running()


def test_closing_leaves_the_consumers_running(folder):
    backend = ProcessBackend(_shell(GENTLE), folder)
    backend.create({0})
    before = backend.running()

    backend.close()

    assert ProcessBackend(_shell(GENTLE), folder).running() == before


def test_consumers_work_where_they_are_told_to(folder, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("work")
    backend = ProcessBackend(_shell('echo "up in $PWD"; ' + GENTLE), folder, workdir=workdir)

    backend.create({0})
    _up(folder, 0)

    assert f"up in {workdir}" in (folder / "consumer-0.log").read_text()
