"""The usage of a process contains that of its children, also after they have ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trimtab.observe.clock import wait_until
from trimtab_lab.benchmarks.spark.process_usage import TreeMeter, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which Linux has")


def test_a_child_counts_with_its_parent() -> None:
    busy = "import sys\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as child:
        meter = TreeMeter(os.getpid())
        try:
            meter.look()
            assert child.pid in tree(os.getpid())
            wait_until(lambda: tree(child.pid)[child.pid].cpu_s > 0.05, within_s=60)
            meter.look()
        finally:
            child.kill()
    assert sum(meter.cpu_s().values()) > 0.04
    assert sum(meter.rss_bytes().values()) > 0


def test_a_process_that_is_not_there_uses_nothing() -> None:
    meter = TreeMeter(2**30)
    meter.look()
    assert meter.cpu_s() == meter.rss_bytes() == {}
