"""The KEDA scaler, asked by a real gRPC client over loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import grpc
import pytest

from trimtab.apply.consumers.keda import externalscaler_pb2 as messages
from trimtab.apply.consumers.keda.externalscaler_pb2_grpc import ExternalScalerStub
from trimtab.apply.consumers.keda.scaler import METRIC, Scaler
from trimtab.apply.consumers.keda.wanted import WantedConsumers
from trimtab.errors import ConfigError

DEADLINE_S = 20.0


class Decisions(dict[str, WantedConsumers]):
    """What is wanted per group; counts how often it was asked."""

    def __init__(self, **wanted: WantedConsumers) -> None:
        super().__init__(wanted)
        self.asked = threading.Semaphore(0)

    def __call__(self, group: str) -> WantedConsumers | None:
        self.asked.release()
        return self.get(group)


@pytest.fixture
def decisions() -> Decisions:
    return Decisions(pay=WantedConsumers(3))


@pytest.fixture
def keda(decisions: Decisions) -> Iterator[ExternalScalerStub]:
    with (
        Scaler(decisions, "127.0.0.1:0") as scaler,
        grpc.insecure_channel(f"127.0.0.1:{scaler.port}") as channel,
    ):
        yield ExternalScalerStub(channel)


def _ref(**metadata: str) -> messages.ScaledObjectRef:
    return messages.ScaledObjectRef(name="pay", namespace="shop", scalerMetadata=metadata)


def _metrics(keda: ExternalScalerStub, group: str) -> messages.GetMetricsResponse:
    request = messages.GetMetricsRequest(scaledObjectRef=_ref(group=group), metricName=METRIC)
    return keda.GetMetrics(request, timeout=DEADLINE_S)


def test_the_metric_is_the_wanted_count_and_its_target_is_one(keda):
    [spec] = keda.GetMetricSpec(_ref(group="pay"), timeout=DEADLINE_S).metricSpecs
    [value] = _metrics(keda, "pay").metricValues

    assert spec.metricName == value.metricName
    assert (spec.targetSize, spec.targetSizeFloat) == (1, 1.0)
    assert (value.metricValue, value.metricValueFloat) == (3, 3.0)


@pytest.mark.parametrize(("consumers", "active"), [(0, False), (1, True)])
def test_a_group_is_active_when_it_wants_consumers(keda, decisions, consumers, active):
    decisions["pay"] = WantedConsumers(consumers)

    assert keda.IsActive(_ref(group="pay"), timeout=DEADLINE_S).result is active


@pytest.mark.parametrize("call", ["IsActive", "GetMetricSpec"])
def test_an_unknown_group_is_not_found(keda, call):
    with pytest.raises(grpc.RpcError) as refused:
        getattr(keda, call)(_ref(group="rent"), timeout=DEADLINE_S)

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert "'rent'" in refused.value.details()


def test_a_trigger_without_a_group_is_refused_by_name(keda):
    with pytest.raises(grpc.RpcError) as refused:
        keda.IsActive(_ref(), timeout=DEADLINE_S)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "shop/pay" in refused.value.details()


def test_without_a_fresh_decision_there_is_no_number_but_still_a_spec(keda, decisions):
    decisions["pay"] = WantedConsumers(None, "rates are 40 s old")

    with pytest.raises(grpc.RpcError) as refused:
        _metrics(keda, "pay")

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "rates are 40 s old" in refused.value.details()
    assert keda.GetMetricSpec(_ref(group="pay"), timeout=DEADLINE_S).metricSpecs


def test_a_stream_tells_the_present_and_then_every_change_only(keda, decisions):
    stream = keda.StreamIsActive(_ref(group="pay"), timeout=DEADLINE_S)
    seen = [next(stream).result]

    for wanted in (
        WantedConsumers(5),
        WantedConsumers(None),
        WantedConsumers(0),
        WantedConsumers(2),
    ):
        _ask_anew(decisions)
        decisions["pay"] = wanted
        if wanted.consumers in (0, 2):
            seen.append(next(stream).result)
    stream.cancel()

    assert seen == [True, False, True]


def test_a_stream_of_a_group_that_is_given_up_ends(keda, decisions):
    stream = keda.StreamIsActive(_ref(group="pay"), timeout=DEADLINE_S)
    next(stream)
    del decisions["pay"]

    with pytest.raises(grpc.RpcError) as ended:
        next(stream)

    assert ended.value.code() is grpc.StatusCode.NOT_FOUND


def test_more_streams_than_threads_leave_room_for_other_calls(keda):
    streams = [keda.StreamIsActive(_ref(group="pay"), timeout=DEADLINE_S) for _ in range(50)]

    assert all(next(stream).result for stream in streams)
    assert _metrics(keda, "pay").metricValues[0].metricValue == 3
    for stream in streams:
        stream.cancel()


def test_a_cancelled_stream_asks_no_more(keda, decisions):
    stream = keda.StreamIsActive(_ref(group="pay"), timeout=DEADLINE_S)
    next(stream)
    _ask_anew(decisions)
    stream.cancel()

    # It is gone once a second passes without a question; an open stream asks four times in it.
    for _ in range(int(DEADLINE_S)):
        _drain(decisions)
        if not decisions.asked.acquire(timeout=1.0):
            return
    pytest.fail("the cancelled stream is still served")


def test_closing_ends_open_streams_and_frees_the_port(decisions):
    with Scaler(decisions, "127.0.0.1:0") as scaler:
        channel = grpc.insecure_channel(f"127.0.0.1:{scaler.port}")
        stream = ExternalScalerStub(channel).StreamIsActive(_ref(group="pay"), timeout=DEADLINE_S)
        next(stream)

    with pytest.raises(grpc.RpcError) as ended:
        next(stream)
    channel.close()

    assert ended.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    with socket.create_server(("127.0.0.1", scaler.port)):
        pass


def test_an_address_in_use_is_a_configuration_error(decisions):
    with (
        Scaler(decisions, "127.0.0.1:0") as first,
        pytest.raises(ConfigError, match=f"127.0.0.1:{first.port}"),
        Scaler(decisions, f"127.0.0.1:{first.port}"),
    ):
        pass


def _drain(decisions: Decisions) -> None:
    while decisions.asked.acquire(blocking=False):
        pass


def _ask_anew(decisions: Decisions) -> None:
    """Waits until the scaler has looked at what stands now."""
    _drain(decisions)
    assert decisions.asked.acquire(timeout=DEADLINE_S)
