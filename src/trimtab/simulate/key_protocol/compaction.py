"""A small model of states in chunks on a compacted topic.

A writer replaces the state of a key a few times, larger or smaller, in numbered chunks; each state
is one transaction. Compaction may remove a record at any time if a newer one has the same record
key. A reader that starts at any time must get the newest state.

>>> from trimtab.simulate.key_protocol.exploration import explore
>>> explore(CompactionModel()).fault is None
True
>>> explore(CompactionModel(record_key=key_without_chunk)).fault.kind
'LOSS'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trimtab.apply.keys.chunks import join_state, split_state, state_key, surplus_chunks
from trimtab.simulate.key_protocol.exploration import Action, BadState
from trimtab.simulate.key_protocol.scenario import ProtocolFault

LogLine = tuple[bytes, int, int, bytes | None]
"""Record key, chunk, number of chunks, and content; None is a tombstone."""

CompactionState = tuple[int, tuple[LogLine, ...]]
"""The number of states written, and the log."""

_KEY = b"a"
_LIMIT = 2
_STATES = (b"abcde", b"xyz", b"", b"pqrstu")


def key_without_chunk(key: bytes, chunk: int) -> bytes:  # noqa: ARG001
    """The broken variant: all chunks of a state have one record key."""
    return b"k" + key


class CompactionModel:
    """The writer, the log and its compaction."""

    def __init__(
        self,
        *,
        record_key: Callable[[bytes, int], bytes] = state_key,
        surplus: Callable[[int, int], range] = surplus_chunks,
    ) -> None:
        self._record_key = record_key
        self._surplus = surplus

    def initial(self) -> CompactionState:
        """An empty log."""
        return 0, ()

    def successors(
        self, state: CompactionState
    ) -> list[tuple[Action, CompactionState | BadState, bool]]:
        """The next state is written, or one record is compacted away."""
        written, log = state
        found: list[tuple[Action, CompactionState | BadState, bool]] = []
        if written < len(_STATES):
            after = (written + 1, (*log, *self._lines(written)))
            found.append((("writer", "writes", written), self._checked(after), True))
        for at, (key, *_) in enumerate(log):
            if any(later == key for later, *_ in log[at + 1 :]):
                after = (written, (*log[:at], *log[at + 1 :]))
                found.append((("broker", "compacts", at), self._checked(after), False))
        return found

    def check_end(self, state: CompactionState) -> BadState | None:  # noqa: ARG002
        """Every state was checked when it was reached."""
        return None

    def _lines(self, number: int) -> Iterator[LogLine]:
        chunks = split_state(_STATES[number], _LIMIT)
        before = len(split_state(_STATES[number - 1], _LIMIT)) if number else 0
        for chunk, content in enumerate(chunks):
            yield self._record_key(_KEY, chunk), chunk, len(chunks), content
        for chunk in self._surplus(before, len(chunks)):
            yield self._record_key(_KEY, chunk), chunk, 0, None

    def _checked(self, state: CompactionState) -> CompactionState | BadState:
        written, log = state
        newest: dict[int, bytes] = {}
        count = 0
        for _, chunk, chunks, content in log:
            if content is None:
                newest.pop(chunk, None)
            else:
                newest[chunk] = content
                count = chunks
        if len(newest) != count:
            return BadState(ProtocolFault.LOSS.name, f"{len(newest)} of {count} chunks are left.")
        if join_state(newest, count) != _STATES[written - 1]:
            return BadState(ProtocolFault.STALE_STATE.name, "The chunks are of different states.")
        return state
