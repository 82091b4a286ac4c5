"""The user's side of a keyed consumer: a function from state and record to state and outputs.

Promise  For each key the records come in the order of the input, and each takes effect once on the
         state and on the outputs, also when the key moves and when a consumer dies. A function that
         fails is called again with the state as it was before the record, even if it has changed
         that object.

>>> def total(key: bytes, state: int | None, record: Record) -> tuple[int, list[Output]]:
...     amount = (state or 0) + int(record.value or 0)
...     return amount, [Output("totals", str(amount).encode(), key=key)]
>>> KeyedHandler(total).codec.decode(b"41")
41
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgpack

from trimtab.apply.handling import Handler, check_shape, load_named
from trimtab.model.key_chain import next_chain
from trimtab.model.record import Headers, Record


@dataclass(frozen=True, slots=True)
class Output:
    """A record that the task's transaction writes to another topic.

    Without a partition, the client's partitioner chooses it by key as Kafka's default one does.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Answer = tuple[Any, Iterable[Output] | None]
"""The state after a record, None for no state, and the outputs."""

Handle = Callable[[bytes, Any, Record], Answer]
HandleBatch = Callable[[bytes, Any, Sequence[Record]], Answer]
Close = Callable[[bytes, Any], Iterable[Output] | None]


class StateCodec(Protocol):
    """How a state becomes bytes and back."""

    def encode(self, state: Any) -> bytes:
        """The bytes of a state that is not None."""
        ...

    def decode(self, value: bytes) -> Any:
        """The state of these bytes."""
        ...


class JsonCodec:
    """States are JSON values: dicts, lists, strings, numbers, booleans."""

    def encode(self, state: Any) -> bytes:
        """The bytes of a state."""
        return json.dumps(state, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, value: bytes) -> Any:
        """The state of these bytes."""
        return json.loads(value)


class MsgpackCodec:
    """States are msgpack values: smaller and faster than JSON, with bytes, and with tuples."""

    def encode(self, state: Any) -> bytes:
        """The bytes of a state."""
        packed: bytes = msgpack.packb(state)
        return packed

    def decode(self, value: bytes) -> Any:
        """The state of these bytes."""
        return msgpack.unpackb(value, strict_map_key=False)


class BytesCodec:
    """States are bytes already."""

    def encode(self, state: Any) -> bytes:
        """The state, which must be bytes."""
        if not isinstance(state, bytes | bytearray | memoryview):
            raise TypeError(f"the state must be bytes, not {type(state).__name__}")
        return bytes(state)

    def decode(self, value: bytes) -> Any:
        """The state of these bytes."""
        return value


class StateFormat(StrEnum):
    """The codecs that can be chosen by name."""

    JSON = "json"
    MSGPACK = "msgpack"
    BYTES = "bytes"


CODECS: dict[StateFormat, StateCodec] = {
    StateFormat.JSON: JsonCodec(),
    StateFormat.MSGPACK: MsgpackCodec(),
    StateFormat.BYTES: BytesCodec(),
}


@dataclass(frozen=True, slots=True)
class KeyedHandler:
    """What a keyed consumer does with the records of a key.

    Attributes:
        handle: Called with key, state and record; the state is None at the first record.
        handle_batch: Called instead of `handle`, with one or more records of the key, in order.
        close: Called with key and state when the state leaves this consumer's partition; it may
            return last outputs. It cannot change the state.
        codec: How states are stored.
        chain_of: The `chain` of a receipt, from the state after its record; for audits.
    """

    handle: Handle | None = None
    handle_batch: HandleBatch | None = None
    close: Close | None = None
    codec: StateCodec = CODECS[StateFormat.JSON]
    chain_of: Callable[[Any], str | None] | None = None

    def __post_init__(self) -> None:
        if (self.handle is None) is (self.handle_batch is None):
            raise ValueError("A keyed handler has either handle or handle_batch.")


_SHAPE = (
    "A keyed handler takes key, state and record, and returns the state and a list of outputs: "
    "def handle(key, state, record): return state, []"
)


def load_keyed_handler(name: str, state: StateFormat) -> KeyedHandler:
    """Imports `module:function`, or a `KeyedHandler` with its own codec."""
    found = load_named(name, shape=_SHAPE)
    if isinstance(found, KeyedHandler):
        return found
    check_shape(name, found, arguments=3, shape=_SHAPE)
    return KeyedHandler(found, codec=CODECS[state])


# ------------------------------------------------------------ counting


def _count(_key: bytes, state: Any, record: Record) -> Answer:
    count, chain = (0, "") if state is None else (state["count"], state["chain"])
    header = record.header("tt-seq")
    seq = count + 1 if header is None else int.from_bytes(header, "big", signed=True)
    return {"count": count + 1, "chain": next_chain(chain, seq)}, ()


def counting_handler(service: Handler | None = None) -> KeyedHandler:
    """Counts the records of each key, and chains their numbers (`tt-seq`) for the set audit.

    `service` is called with each record first; for experiments, it takes time.
    """

    def serve_and_count(key: bytes, state: Any, record: Record) -> Answer:
        if service is not None:
            service(record)
        return _count(key, state, record)

    handle = _count if service is None else serve_and_count
    return KeyedHandler(handle, chain_of=lambda state: None if state is None else state["chain"])


def encoded(codec: StateCodec, state: Any) -> bytes | None:
    """The bytes of a state, checked: they must be bytes."""
    if state is None:
        return None
    value = codec.encode(state)
    if not isinstance(value, bytes):
        raise TypeError(f"the codec returned {type(value).__name__} instead of bytes")
    return value


def answer_of(found: Any) -> tuple[Any, tuple[Output, ...]]:
    """What a handler returned, checked."""
    if not isinstance(found, tuple) or len(found) != 2:
        if inspect.iscoroutine(found):
            found.close()  # else Python warns that it was never awaited
        raise TypeError(f"a keyed handler returns (state, outputs), not {type(found).__name__}")
    state, outputs = found
    return state, outputs_of(outputs)


def outputs_of(outputs: Any) -> tuple[Output, ...]:
    """The outputs of a handler, checked."""
    if outputs is None:
        return ()
    if isinstance(outputs, Output):
        raise TypeError("the outputs of a keyed handler are a list")
    listed = tuple(outputs)
    for output in listed:
        if not isinstance(output, Output):
            raise TypeError(f"an output is a trimtab.Output, not {type(output).__name__}")
    return listed
