"""Only failed waits may be run again: a lost record or a wrong figure is final."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failed_waits import ONLY_WAITS_FAILED

ROOT = Path(__file__).parents[2]
WAIT = """
from trimtab.observe.clock import wait_until
def test_wait(): wait_until(lambda: False, within_s=0.01)
"""
OTHER = "\ndef test_other(): assert [1, 2] == [2, 1]\n"
BROKEN = """
import pytest
@pytest.fixture
def cluster(): raise OSError("no cluster")
def test_broken(cluster): pass
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (WAIT, ONLY_WAITS_FAILED),
        (OTHER, 1),
        (WAIT + OTHER, 1),
        (WAIT + BROKEN, 1),
        ("def test_fine(): pass", 0),
    ],
    ids=["a wait", "another failure", "both", "a fixture", "none"],
)
def test_the_exit_code_says_whether_only_waits_failed(tmp_path: Path, text: str, code: int) -> None:
    """The Makefile runs tests again only at the exit code of failed waits."""
    (tmp_path / "conftest.py").write_text(
        "from tests.failed_waits import FailedWaits\n"
        "def pytest_configure(config): config.pluginmanager.register(FailedWaits())\n"
    )
    (tmp_path / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others only take their time
    ran = subprocess.run(
        [*command, tmp_path, tmp_path], cwd=ROOT, env=alone, capture_output=True, check=False
    )
    assert ran.returncode == code, ran.stdout.decode()
