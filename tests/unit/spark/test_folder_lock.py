"""One driver uses a folder; the lock of one that has ended is free."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.errors import ConfigError
from trimtab.spark.folder_lock import used_alone

_HOLDER = """
import sys
from trimtab.spark.folder_lock import used_alone
with used_alone(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_which_one_is_there(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints" / "rates-1")
    command = [sys.executable, "-c", _HOLDER, folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(ConfigError, match=f"Process {other.pid} already uses .*rates-1") as said,
            used_alone(folder),
        ):
            pass
        assert "--checkpoint" in (said.value.hint or "")
        other.kill()  # as a crash would end it
        other.wait()
        with used_alone(folder):
            assert Path(f"{folder}.lock").read_text() == str(os.getpid())


def test_the_same_process_is_refused_too_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/rates-1"
    with used_alone(folder), pytest.raises(ConfigError), used_alone(folder):
        pass
    with used_alone(folder), used_alone(f"file://{tmp_path}/rates-2"):
        pass


def test_storage_without_locks_is_not_locked(tmp_path: Path) -> None:
    with used_alone("hdfs://host/checkpoints"), used_alone("hdfs://host/checkpoints"):
        pass
