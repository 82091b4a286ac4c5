"""A process paused and resumed in a beat: slow while it lasts, running afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trimtab.errors import ConfigError
from trimtab.local.processes import ProcessId, ProcessState, end, process_state, send, spawn
from trimtab.observe.clock import wait_until
from trimtab_lab.slow_broker import slowed_process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessId]:
    """A process that does nothing for a minute."""
    process = spawn(("sleep", "60"), folder=tmp_path, log=tmp_path / "log")
    yield process
    end((process,), patience_s=0)


eventually = partial(wait_until, within_s=20.0, every_s=0.005)


def seen(process: ProcessId, states: set[ProcessState]) -> bool:
    """Whether each of these states shows, one time or another."""
    return all(eventually(partial(_is, process, state)) for state in states)


def _is(process: ProcessId, state: ProcessState) -> bool:
    return process_state(process) is state


def stays_running(process: ProcessId) -> bool:
    """Whether it is never seen paused over five periods of the beat."""
    deadline = time.monotonic() + 0.25
    while time.monotonic() < deadline:
        if process_state(process) is not ProcessState.RUNNING:
            return False
    return True


def test_a_slowed_process_is_paused_and_resumed_and_runs_afterwards(sleeper):
    with slowed_process(sleeper, share=0.5, period_s=0.05):
        for _ in range(3):
            assert seen(sleeper, {ProcessState.PAUSED, ProcessState.RUNNING})

    assert stays_running(sleeper)


def test_it_runs_on_when_whoever_slowed_it_is_killed(sleeper):
    program = (
        "import sys, time\n"
        "from trimtab.local.processes import ProcessId\n"
        "from trimtab_lab.slow_broker import slowed_process\n"
        "with slowed_process(ProcessId(int(sys.argv[1]), sys.argv[2]), share=0.9, period_s=0.05):\n"
        "    print('slowed', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(sleeper.pid), sleeper.started], stdout=subprocess.PIPE
    ) as asking:
        assert asking.stdout is not None
        asking.stdout.readline()
        assert seen(sleeper, {ProcessState.PAUSED})
        asking.kill()

    assert eventually(lambda: stays_running(sleeper))


def test_it_runs_on_when_the_beat_is_told_to_end(sleeper):
    beating = subprocess.Popen(
        [
            *(sys.executable, "-m", "trimtab_lab.slow_broker"),
            *(str(sleeper.pid), sleeper.started, "0.9", "0.05"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert seen(sleeper, {ProcessState.PAUSED})

    beating.send_signal(signal.SIGTERM)
    beating.communicate()

    assert beating.returncode == 0
    assert stays_running(sleeper)


def test_a_stranger_under_the_same_pid_is_left_alone():
    stranger = ProcessId(os.getpid(), "another start")

    with pytest.raises(ConfigError, match="not running"), slowed_process(stranger, share=0.5):
        pass


def test_a_process_that_ends_while_it_is_slow_ends_the_beat(sleeper):
    with slowed_process(sleeper, share=0.5, period_s=0.05):
        send(sleeper, signal.SIGKILL)
        assert seen(sleeper, {ProcessState.DEAD})


@pytest.mark.parametrize(("share", "period_s"), [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0)])
def test_a_share_that_is_no_share_is_refused(sleeper, share, period_s):
    with (
        pytest.raises(ValueError, match="share"),
        slowed_process(sleeper, share=share, period_s=period_s),
    ):
        pass
