"""Calls of the user's handler: states are decoded before and encoded after each of them.

Promise  A call that fails changes nothing: the next attempt gets the state as it was before, even
         if the object was changed. A state that cannot be encoded is a failure of its record. What
         a handler raises never leaves this module, except Ctrl-C and `Interrupted`.
Cost     One encoding per call. A state is decoded once per round, as long as no call fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trimtab.apply.handling import attempted, error_text
from trimtab.apply.keys.keyed_handler import Output, answer_of, encoded, outputs_of
from trimtab.apply.keys.task_round import TaskHandling
from trimtab.kafka.retry import Retry
from trimtab.model.record import Record

_ONCE = Retry(attempts=1)


class HandledCall(NamedTuple):
    """What came of a call: `value` is the state afterwards, as it was before if there is an error.

    `chain` is the handler's, for receipts.
    """

    value: bytes | None
    outputs: tuple[Output, ...]
    started_ts: int
    finished_ts: int
    chain: str | None
    error: str | None


class HandlerCalls:
    """The handler of a task, in its single or in its batch form; used by one thread."""

    def __init__(self, handling: TaskHandling) -> None:
        handler = handling.handler
        self.is_batch = handler.handle is None
        self._handling = handling
        self._function: Callable[[bytes, Any, Any], Any] = (
            handler.handle or handler.handle_batch  # type: ignore[assignment]  # it has one of them
        )
        self._codec = handler.codec
        self._chain_of = handler.chain_of
        self._decoded: dict[bytes, tuple[bytes, Any]] = {}

    def handle(self, key: bytes, value: bytes | None, record: Record) -> HandledCall:
        """Calls the single form with a record.

        Raises `Interrupted` if the consumer was stopped between two attempts.
        """
        return self._handled(key, value, record, record)

    def handle_batch(
        self, key: bytes, value: bytes | None, records: Sequence[Record]
    ) -> HandledCall:
        """Calls the batch form with one or more records; raises `Interrupted` as `handle` does."""
        return self._handled(key, value, records, records[0])

    def _handled(
        self, key: bytes, value: bytes | None, argument: Any, record: Record
    ) -> HandledCall:
        handling = self._handling
        handling.in_hand(record)
        started_ts = handling.now_us()
        try:
            answer = self._answer(key, value, argument)
        except BaseException as raised:  # user code may raise anything
            found, error = self._again(raised, lambda: self._answer(key, value, argument))
            if found is None:
                text = error_text(error)
                return HandledCall(value, (), started_ts, handling.now_us(), None, text)
            answer = found
        finally:
            handling.in_hand(None)
        after, state, outputs = answer[:3]
        if after is not None:
            self._decoded[key] = (after, state)
        return HandledCall(after, outputs, started_ts, handling.now_us(), answer[3], None)

    def _answer(
        self, key: bytes, value: bytes | None, argument: Any
    ) -> tuple[bytes | None, Any, tuple[Output, ...], str | None]:
        state, outputs = answer_of(self._function(key, self._state(key, value), argument))
        self._checked(outputs)
        chain = None if self._chain_of is None else self._chain_of(state)
        return encoded(self._codec, state), state, outputs, chain

    def _again(self, raised: BaseException, call: Callable[[], Any]) -> Any:
        """Goes on after a first attempt that has failed."""
        first = [raised]

        def next_attempt() -> Any:
            if first:
                raise first.pop()
            return call()

        handling = self._handling
        return attempted(next_attempt, retry=handling.retry, stopped_within=handling.stopped_within)

    def _state(self, key: bytes, value: bytes | None) -> Any:
        """The state as an object; one that was given away is not given again."""
        if value is None:
            return None
        known = self._decoded.pop(key, None)
        if known is not None and known[0] is value:
            return known[1]
        return self._codec.decode(value)

    def close(self, key: bytes, value: bytes | None) -> tuple[tuple[Output, ...], str | None]:
        """Calls `close` for a state that leaves: its last outputs, or what it raised."""
        close = self._handling.handler.close
        if close is None or value is None:
            self._decoded.pop(key, None)
            return (), None
        outputs, error = attempted(
            lambda: self._checked(outputs_of(close(key, self._state(key, value)))),
            retry=_ONCE,
            stopped_within=self._handling.stopped_within,
        )
        return outputs or (), None if error is None else error_text(error)

    def _checked(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        for output in outputs:
            self._handling.check_output(output)
        return outputs

    def forget_states(self) -> None:
        """Drops decoded states: memory holds those of one round."""
        self._decoded.clear()
