import sys

import pytest

from trimtab.apply.handling import FixedService, Interrupted, Retry, attempt, load_handler
from trimtab.apply.records import Record
from trimtab.errors import ConfigError

RECORD = Record("orders", 0, 17, b"k", b"v", (), 1000)


class Flaky:
    """Fails so many times, then goes well."""

    def __init__(self, failures):
        self.failures = failures
        self.calls = 0

    def __call__(self, record):
        self.calls += 1
        if self.calls <= self.failures:
            raise ValueError(f"failure {self.calls}")


def tried(handler, *, attempts, leave=False):
    """The outcome and the pauses."""
    pauses = []

    def wait(pause_s):
        pauses.append(pause_s)
        return leave

    outcome = attempt(
        handler,
        RECORD,
        retry=Retry(attempts=attempts, first_s=1.0, most_s=3.0),
        told_to_leave_in=wait,
    )
    return outcome, pauses


def test_a_handler_that_goes_well_is_called_once():
    handler = Flaky(0)
    assert tried(handler, attempts=5) == (None, [])
    assert handler.calls == 1


def test_a_handler_that_fails_for_a_while_is_tried_again_with_growing_pauses():
    handler = Flaky(4)
    assert tried(handler, attempts=5) == (None, [1.0, 2.0, 3.0, 3.0])
    assert handler.calls == 5


def test_a_record_is_given_up_with_the_last_error():
    handler = Flaky(99)
    error, pauses = tried(handler, attempts=3)
    assert str(error) == "failure 3"
    assert pauses == [1.0, 2.0]
    assert handler.calls == 3


def test_a_consumer_that_is_told_to_leave_does_not_try_again():
    handler = Flaky(99)
    with pytest.raises(Interrupted):
        tried(handler, attempts=3, leave=True)
    assert handler.calls == 1


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_s": -1}, {"first_s": 2, "most_s": 1}])
def test_a_senseless_way_to_retry_is_refused(wrong):
    with pytest.raises(ValueError, match="no way to retry"):
        Retry(**wrong)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working folder."""
    (tmp_path / "shop_of_a_test.py").write_text(
        "seen = []\ndef handle(record):\n    seen.append(record)\n"
        "class Till:\n    @staticmethod\n    def book(record): ...\n"
    )
    (tmp_path / "broken_of_a_test.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("shop_of_a_test", "broken_of_a_test"):
        sys.modules.pop(name, None)


def test_a_handler_is_found_in_the_working_folder(module):
    load_handler("shop_of_a_test:handle")(RECORD)
    assert sys.modules["shop_of_a_test"].seen == [RECORD]
    assert load_handler("shop_of_a_test:Till.book")(RECORD) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("handle", "names no handler"),
        ("shop_of_a_test:", "names no handler"),
        ("no_such_module_at_all:handle", "cannot be imported"),
        ("broken_of_a_test:handle", "ZeroDivisionError"),
        ("shop_of_a_test:missing", "has no function missing"),
        ("shop_of_a_test:seen", "has no function seen"),
    ],
)
def test_a_handler_that_cannot_be_had_is_refused_with_its_reason(module, name, told):
    with pytest.raises(ConfigError, match=told):
        load_handler(name)


def test_a_fixed_service_time_is_exact_in_the_mean_though_every_sleep_is_too_long():
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds + 0.003

    handler = FixedService(0.010, clock=lambda: now, sleep=sleep)
    for _ in range(1000):
        handler(RECORD)
    assert now == pytest.approx(10.0, abs=0.004)
