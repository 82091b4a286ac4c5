"""The user's handler: how it is loaded, and how often it is tried for each record.

Promise  A record is handled, or sent to the dead letters with the last error; never skipped. Each
         record is tried `Retry.attempts` times, with pauses that double. A consumer that is stopped
         does not wait for the end of a pause: the record then counts as not handled. Whatever a
         handler raises is an error of that record, including `sys.exit` and a cancelled task. Only
         Ctrl-C ends the consumer.
"""

from __future__ import annotations

import importlib
import inspect
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trimtab.errors import ConfigError
from trimtab.kafka.retry import Retry
from trimtab.model.record import Record

Handler = Callable[[Record], object]
"""A user's function: called with one record at a time, in order within a partition.

What it returns is ignored, except that a coroutine or a generator is an error."""

_Answer = TypeVar("_Answer")


class Interrupted(Exception):
    """The consumer was stopped before the record was handled."""


def attempt(
    handler: Handler, record: Record, *, retry: Retry, stopped_within: Callable[[float], bool]
) -> BaseException | None:
    """Handles a record; returns the last error if all attempts failed, else None.

    `stopped_within` waits this many seconds; it returns True at once if the consumer must stop.
    """
    _, error = attempted(lambda: handler(record), retry=retry, stopped_within=stopped_within)
    return error


def attempted(
    call: Callable[[], _Answer], *, retry: Retry, stopped_within: Callable[[float], bool]
) -> tuple[_Answer, None] | tuple[None, BaseException]:
    """What a call of user code returned, or the last error if all attempts failed."""
    pauses = retry.pauses()
    while True:
        try:
            answer = call()
            _check_result(answer)
        except BaseException as error:  # user code may raise anything
            if isinstance(error, KeyboardInterrupt) and _is_ctrl_c(stopped_within):
                raise
            pause_s = next(pauses, None)
            if pause_s is None:
                return None, error
            if stopped_within(pause_s):
                raise Interrupted from error
        else:
            return answer, None


def _is_ctrl_c(stopped_within: Callable[[float], bool]) -> bool:
    """Whether a KeyboardInterrupt may come from the keyboard, and not from the handler itself.

    `consume` replaces Python's signal handler and raises it only after it was asked to stop.
    """
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler or stopped_within(0)


def _check_result(result: object) -> None:
    """Refuses a coroutine or a generator: the handler's code in it has not run."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(
            f"the handler returned a {type(result).__name__}, whose code does not run; "
            "write it as a plain function"
        )


def error_text(error: BaseException, *, most: int = 500) -> str:
    r"""Type and message of any exception in at most `most` characters; never raises.

    The text may contain invalid characters, be very long, or fail to be produced.

    >>> error_text(ValueError("no such account"))
    'ValueError: no such account'
    >>> error_text(ValueError("bad \udcff text"))
    'ValueError: bad \\udcff text'
    """
    name = type(error).__name__
    try:
        message = "".join(str(error))[:most]
    except BaseException as failure:  # __str__ is user code, too
        message = f"(its text cannot be shown: __str__ raised {type(failure).__name__})"
    text = f"{name}: {message}" if message else name
    return text.encode(errors="backslashreplace").decode()[:most]


def load_handler(name: str) -> Handler:
    """Imports the function `module:function`; the working folder is searched as well."""
    found = load_named(name, shape=_SHAPE)
    check_shape(name, found, arguments=1, shape=_SHAPE)
    return found  # type: ignore[no-any-return]  # its shape was checked


_SHAPE = "A handler takes one trimtab.Record."


def load_named(name: str, *, shape: str) -> Any:
    """Imports `module:name`; `shape` is the hint if there is no such thing."""
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ConfigError(
            f"Invalid handler: {name!r}.", hint="Write it as module:function, such as shop:handle."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may fail in any way while it is imported
        raise ConfigError(
            f"The handler's module {module_name} cannot be imported: {error_text(error)}.",
            hint="The module must not end the program (sys.exit) when it is imported."
            if isinstance(error, SystemExit)
            else "Modules are searched in the working folder and on Python's path.",
        ) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ConfigError(f"The module {module_name} has no function {path}.", hint=shape)
    return found


def check_shape(name: str, handler: Any, *, arguments: int, shape: str) -> None:
    """Refuses objects that cannot be called with that many arguments, or that would do nothing."""
    if not callable(handler):
        module_name, _, path = name.partition(":")
        raise ConfigError(f"The module {module_name} has no function {path}.", hint=shape)
    if inspect.isclass(handler):
        raise ConfigError(
            f"The handler {name} is a class: calling it would only create an object per record.",
            hint="Name a function, or a callable object of that class in the module.",
        )
    if _runs_nothing(handler) or _runs_nothing(getattr(handler, "__call__", None)):  # noqa: B004
        raise ConfigError(
            f"The handler {name} is a coroutine or generator function: calling it runs nothing.",
            hint="Write a plain function; it may call asyncio.run.",
        )
    try:
        inspect.signature(handler).bind(*[None] * arguments)
    except TypeError as error:
        with_ = "one record" if arguments == 1 else f"{arguments} arguments"
        raise ConfigError(
            f"The handler {name} cannot be called with {with_}: {error}.", hint=shape
        ) from error
    except ValueError:  # some built-in functions have no signature
        return


def _runs_nothing(function: object) -> bool:
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


class FixedService:
    """A handler that takes the same time for every record, or for every byte, for experiments.

    A sleep is always a little too long: the excess is subtracted from the next one, so that the
    mean is exact.
    """

    def __init__(
        self,
        service_s: float,
        *,
        per_byte_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._service_s = service_s
        self._per_byte_s = per_byte_s
        self._clock = clock
        self._sleep = sleep
        self._due_s = 0.0

    def __call__(self, record: Record) -> None:
        """Sleeps for the record's service time."""
        self._due_s += self._service_s + self._per_byte_s * record.size
        if self._due_s > 0:
            began = self._clock()
            self._sleep(self._due_s)
            self._due_s -= self._clock() - began
