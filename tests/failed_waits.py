"""Tells by the exit code whether a run failed only because conditions were not met in time."""

from __future__ import annotations

import pytest

from trimtab.observe.clock import TimedOut

ONLY_WAITS_FAILED = 75
"""The exit code of a run in which nothing failed but waits; the Makefile runs those again."""

_WAIT = f"{TimedOut.__module__}.{TimedOut.__qualname__}:"


class FailedWaits:
    """A pytest plugin; its hooks are called in the process that collects all results."""

    def __init__(self) -> None:
        self.others = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts the failures that were not waits."""
        crash = getattr(report.longrepr, "reprcrash", None)
        if report.failed and (crash is None or not crash.message.startswith(_WAIT)):
            self.others += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Changes the exit code if only waits have failed."""
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self.others:
            session.exitstatus = ONLY_WAITS_FAILED
