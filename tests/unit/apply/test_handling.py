import asyncio
import signal
import sys

import pytest

from trimtab.apply.handling import (
    FixedService,
    Interrupted,
    attempt,
    error_text,
    load_handler,
)
from trimtab.errors import ConfigError
from trimtab.kafka.retry import Retry
from trimtab.model.record import Record

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
        stopped_within=wait,
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


class Mute(Exception):
    """Cannot be shown at all."""

    def __str__(self):
        raise SystemExit("no text")

    __repr__ = __str__


class Numb(Exception):
    def __str__(self):
        return 7  # noqa: PLE0307 - that is the point


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such account"), "ValueError: no such account"),
        (ValueError(), "ValueError"),
        (ValueError("bad \udcff text"), "ValueError: bad \\udcff text"),
        (ValueError("ä" * 10_000), "ValueError: " + "ä" * 488),
        (ValueError("\udcff" * 10_000), ("ValueError: " + "\\udcff" * 500)[:500]),
        (Mute(), "Mute: (its text cannot be shown: __str__ raised SystemExit)"),
        (Numb(), "Numb: (its text cannot be shown: __str__ raised TypeError)"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_any_exception_has_a_text_that_fits_into_a_header(error, told):
    assert error_text(error) == told
    assert len(error_text(error).encode()) <= 2000


@pytest.mark.parametrize(
    "raised", [SystemExit(0), GeneratorExit(), asyncio.CancelledError(), MemoryError(), Mute()]
)
def test_whatever_a_handler_raises_is_an_error_of_that_record(raised):
    def handle(_record):
        raise raised

    assert tried(handle, attempts=2) == (raised, [1.0])


def test_ctrl_c_ends_a_consumer_and_a_handler_that_pretends_does_not():
    pretended = KeyboardInterrupt()

    def handle(_record):
        raise pretended

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tried(handle, attempts=2)
        signal.signal(signal.SIGINT, lambda *_: None)  # as `consume` does
        assert tried(handle, attempts=2)[0] is pretended
        with pytest.raises(KeyboardInterrupt):
            tried(handle, attempts=2, leave=True)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("returned", [None, 7, "text", object(), [1], ValueError("not raised")])
def test_what_a_handler_returns_is_ignored(returned):
    assert tried(lambda _record: returned, attempts=2) == (None, [])


def test_a_handler_whose_code_did_not_run_has_not_handled_the_record():
    async def handle(_record): ...

    def each(_record):
        yield 1

    for handler in (handle, each):
        error, _ = tried(handler, attempts=1)
        assert isinstance(error, TypeError)
        assert "does not run" in str(error)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_s": -1}, {"first_s": 2, "most_s": 1}])
def test_a_senseless_way_to_retry_is_refused(wrong):
    with pytest.raises(ValueError, match="invalid retry settings"):
        Retry(**wrong)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working folder."""
    (tmp_path / "shop_of_a_test.py").write_text(
        "seen = []\ndef handle(record):\n    seen.append(record)\n"
        "class Till:\n    @staticmethod\n    def book(record): ...\n"
        "async def later(record): ...\ndef each(record):\n    yield\ndef two(record, more): ...\n"
        "class Soon:\n    def __init__(self, where=None): ...\n"
        "    async def __call__(self, record): ...\nsoon = Soon()\n"
    )
    (tmp_path / "broken_of_a_test.py").write_text("1 / 0\n")
    (tmp_path / "leaving_of_a_test.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "odd_of_a_test.py").write_text("raise ValueError('bad \\udcff')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("shop_of_a_test", "broken_of_a_test", "leaving_of_a_test", "odd_of_a_test"):
        sys.modules.pop(name, None)


def test_a_handler_is_found_in_the_working_folder(module):
    load_handler("shop_of_a_test:handle")(RECORD)
    assert sys.modules["shop_of_a_test"].seen == [RECORD]
    assert load_handler("shop_of_a_test:Till.book")(RECORD) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("handle", "Invalid handler"),
        ("shop_of_a_test:", "Invalid handler"),
        ("no_such_module_at_all:handle", "cannot be imported"),
        ("broken_of_a_test:handle", "ZeroDivisionError"),
        ("leaving_of_a_test:handle", "cannot be imported: SystemExit: 0"),
        ("odd_of_a_test:handle", r"ValueError: bad \\udcff"),
        ("shop_of_a_test:later", "is a coroutine or generator function"),
        ("shop_of_a_test:each", "is a coroutine or generator function"),
        ("shop_of_a_test:soon", "is a coroutine or generator function"),
        ("shop_of_a_test:Soon", "is a class"),
        ("shop_of_a_test:two", "cannot be called with one record"),
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


def test_a_service_time_per_byte_adds_up_to_the_bytes_whatever_the_records_are_like():
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds + 0.003

    handler = FixedService(0.0, per_byte_s=1e-5, clock=lambda: now, sleep=sleep)
    sizes = [100 + 37 * (n % 50) for n in range(1000)]
    for size in sizes:
        handler(RECORD._replace(key=None, value=bytes(size), headers=()))
    assert now == pytest.approx(sum(sizes) * 1e-5, abs=0.004)
