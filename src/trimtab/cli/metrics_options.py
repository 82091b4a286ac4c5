"""`--metrics-port` and `--metrics-host`: where a verb serves its Prometheus metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Serve Prometheus metrics on this port. Default: no metrics.",
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host",
        metavar="HOST",
        help="Address to serve the metrics on; 0.0.0.0 or :: for all interfaces. The metrics are "
        "served over plain HTTP without authentication.",
    ),
]
METRICS_HOST = "127.0.0.1"


def serve_metrics(port: int | None, host: str) -> None:
    """Serves the metrics if a port is given."""
    if port is None:
        if host != METRICS_HOST:
            raise typer.BadParameter("needs --metrics-port", param_hint="--metrics-host")
        return
    from trimtab.observe import metrics

    metrics.serve(port, host=host)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where a verb serves its metrics."""

    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = METRICS_HOST

    def serve(self) -> None:
        """Serves the metrics if a port is given."""
        serve_metrics(self.metrics_port, self.metrics_host)
