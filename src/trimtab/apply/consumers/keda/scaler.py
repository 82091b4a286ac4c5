"""An external scaler for KEDA: the plan's consumer count over gRPC.

Why      Where KEDA already scales the consumers, it should scale to the plan instead of to the lag.
Promise  The metric is the wanted number of consumers and its target is 1, so KEDA scales to that
         number; `NewestDecision` allows for the autoscaler's tolerance. An unknown value is never
         answered with a number: an unknown group gives NOT_FOUND, no fresh decision gives
         UNAVAILABLE, and KEDA leaves the count as it is.
Cost     One thread, whatever the number of streams.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

import grpc
import structlog

from trimtab.apply.consumers.keda import externalscaler_pb2 as messages
from trimtab.apply.consumers.keda.externalscaler_pb2_grpc import (
    add_ExternalScalerServicer_to_server,
)
from trimtab.apply.consumers.keda.wanted import WantedConsumers
from trimtab.errors import PortTaken

METRIC = "trimtab-consumers"

_LOOK_EVERY_S = 0.25

log = structlog.get_logger()


class Scaler:
    """Serves KEDA from a thread of its own while the `with` block lasts.

    `wanted` takes a group and returns None for one that it does not know; it is called in that
    thread and must not block. `address` is host:port; port 0 takes a free one, see `port`.
    """

    def __init__(self, wanted: Callable[[str], WantedConsumers | None], address: str) -> None:
        self.port = 0
        self._service = _Service(wanted)
        self._address = address
        self._bound: Future[int] = Future()
        self._end: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="keda-scaler", daemon=True)

    def __enter__(self) -> Self:
        """Starts listening; raises PortTaken if the address is not available."""
        self._thread.start()
        try:
            self.port = self._bound.result()
        except RuntimeError as error:
            self._thread.join()
            raise PortTaken(
                f"The KEDA scaler cannot listen on {self._address}.",
                hint="Another process may use the port: choose another one.",
            ) from error
        log.info("keda_scaler_started", address=self._address, port=self.port)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends open streams and stops listening."""
        self._end()
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        # Without the option a second server on the same port would silently get half of the calls.
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        add_ExternalScalerServicer_to_server(self._service, server)
        stop = asyncio.Event()
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set)
        try:
            port = server.add_insecure_port(self._address)
            await server.start()
        except Exception as error:  # raised in the thread that waits
            self._bound.set_exception(error)
            return
        self._bound.set_result(port)
        await stop.wait()
        await server.stop(None)  # no grace: a stream never ends by itself


class _Service:
    """The four calls; their names are KEDA's."""

    def __init__(self, wanted: Callable[[str], WantedConsumers | None]) -> None:
        self._wanted = wanted

    async def IsActive(self, request: Any, context: Any) -> Any:  # noqa: N802
        consumers = await self._consumers(request, context)
        return messages.IsActiveResponse(result=consumers > 0)

    async def StreamIsActive(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Sends whether it is active at once and after each change; nothing while unknown."""
        sent: bool | None = None
        while True:
            wanted = await self._known(request, context)
            if wanted.consumers is not None and sent is not (wanted.consumers > 0):
                sent = wanted.consumers > 0
                yield messages.IsActiveResponse(result=sent)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def GetMetricSpec(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Returns the target: one unit of the metric per consumer."""
        await self._known(request, context)
        spec = messages.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        consumers = await self._consumers(request.scaledObjectRef, context)
        value = messages.MetricValue(
            metricName=METRIC, metricValue=consumers, metricValueFloat=float(consumers)
        )
        return messages.GetMetricsResponse(metricValues=[value])

    async def _consumers(self, ref: Any, context: Any) -> int:
        """Returns the number wanted, or refuses the call."""
        wanted = await self._known(ref, context)
        if wanted.consumers is None:
            what = f"no fresh decision for group {ref.scalerMetadata['group']!r}"
            why = f": {wanted.why}" if wanted.why else ""
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, what + why)
        return wanted.consumers

    async def _known(self, ref: Any, context: Any) -> WantedConsumers:
        """Returns the wanted number of a known group, or refuses the call."""
        group = ref.scalerMetadata.get("group")
        if not group:
            what = f"the trigger of {ref.namespace}/{ref.name} has no metadata 'group'"
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, what)
        wanted = self._wanted(group)
        if wanted is None:
            what = f"this controller does not run group {group!r}"
            await _refuse(context, grpc.StatusCode.NOT_FOUND, what)
        return wanted


async def _refuse(context: Any, code: grpc.StatusCode, what: str) -> NoReturn:
    await context.abort(code, what)
    raise AssertionError("abort raises")
