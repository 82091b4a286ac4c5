"""Explores every state that a model can reach, breadth first.

Promise  The path to the first fault found is one of the shortest. A state without an expected
         action must be a good end. The same model gives the same result.
Cost     One hash of 8 bytes and 6 bytes of history per state; full states only at the frontier. Two
         states with the same hash count as one: with 10 million states the chance of any such
         pair is about 3 in a million.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

Action = tuple[Any, ...]
"""Who does what, with details: `("gateway", 1, "routes", …)`."""


class BadState(Exception):
    """A state that must not be reached: `kind` names the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class ExploredModel(Protocol[S]):
    """What is explored."""

    def initial(self) -> S:
        """The first state."""
        ...

    def successors(self, state: S) -> Sequence[tuple[Action, S | BadState, bool]]:
        """Each possible action, what it leads to, and whether it is expected.

        An action that is not expected, such as a crash, may never happen.
        """
        ...

    def check_end(self, state: S) -> BadState | None:
        """What is wrong with a state in which nothing is expected any more."""
        ...


@dataclass(frozen=True, slots=True)
class TraceStep(Generic[S]):
    """An action, and the states before and after it; after a fault there is none."""

    action: Action
    before: S
    after: S | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFault(Generic[S]):
    """A fault, and how it is reached."""

    kind: str
    text: str
    trace: tuple[TraceStep[S], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration(Generic[S]):
    """What an exploration has found.

    `ends` counts the states in which nothing is expected any more; `is_complete` is False if the
    limit of states came first.
    """

    states: int
    actions: int
    ends: int
    depth: int
    is_complete: bool
    fault: FoundFault[S] | None = None


def explore(
    model: ExploredModel[S],
    *,
    limit: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    every: int = 10_000,
) -> Exploration[S]:
    """Explores up to `limit` states; stops at the first fault.

    `on_progress` is called with the states seen and those at the frontier.
    """
    return _Search(model).run(limit, on_progress, every)


class _Search(Generic[S]):
    """One exploration: what was seen, and from where it was reached."""

    def __init__(self, model: ExploredModel[S]) -> None:
        self.model = model
        self.first = model.initial()
        self.seen = {hash(self.first)}
        self.parents = array("I", [0])
        self.choices = array("H", [0])
        self.frontier: deque[tuple[int, int, S]] = deque([(0, 0, self.first)])
        self.actions = self.ends = self.depth = 0

    def run(
        self, limit: int | None, on_progress: Callable[[int, int], None] | None, every: int
    ) -> Exploration[S]:
        frontier, expand = self.frontier, self._expand
        expanded = 0
        while frontier:
            if limit is not None and len(self.parents) >= limit:
                return self._result(is_complete=False)
            number, depth, state = frontier.popleft()
            fault = expand(number, depth, state)
            if fault is not None:
                return self._result(is_complete=False, fault=fault)
            expanded += 1
            if on_progress is not None and expanded % every == 0:
                on_progress(len(self.parents), len(frontier))
        return self._result(is_complete=True)

    def _expand(self, number: int, depth: int, state: S) -> FoundFault[S] | None:
        self.depth = depth
        found = self.model.successors(state)
        seen, expected = self.seen, False
        for choice, (_, after, is_expected) in enumerate(found):
            expected = expected or is_expected
            self.actions += 1
            if isinstance(after, BadState):
                return self._fault(after, number, choice)
            mark = hash(after)
            if mark not in seen:
                seen.add(mark)
                self.parents.append(number)
                self.choices.append(choice)
                self.frontier.append((len(self.parents) - 1, depth + 1, after))
        if not expected:
            self.ends += 1
            bad = self.model.check_end(state)
            if bad is not None:
                return self._fault(bad, number, None)
        return None

    def _fault(self, bad: BadState, number: int, last: int | None) -> FoundFault[S]:
        """The fault with its path, found by doing the same choices again."""
        choices = [] if last is None else [last]
        while number:
            choices.append(self.choices[number])
            number = self.parents[number]
        steps: list[TraceStep[S]] = []
        state = self.first
        for choice in reversed(choices):
            action, after, _ = self.model.successors(state)[choice]
            if isinstance(after, BadState):
                steps.append(TraceStep(action, state, None))
                break
            steps.append(TraceStep(action, state, after))
            state = after
        return FoundFault(kind=bad.kind, text=bad.text, trace=tuple(steps))

    def _result(self, *, is_complete: bool, fault: FoundFault[S] | None = None) -> Exploration[S]:
        return Exploration(
            states=len(self.parents),
            actions=self.actions,
            ends=self.ends,
            depth=self.depth,
            is_complete=is_complete,
            fault=fault,
        )
