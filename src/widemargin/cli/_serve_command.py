"""The command `serve`, its options and its help; what it does is in `_serve`, imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from widemargin.cli._failure import report_failures
from widemargin.cli._options import Jobs, Model

__all__ = ["serve"]


@report_failures
def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all, then use --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="WIDEMARGIN_TOKEN", help="Bearer token that requests must bring.", show_default="none"),
    ] = None,
    body_mb: Annotated[float, typer.Option(help="Megabytes of a request, at most.")] = 10.0,
    body_seconds: Annotated[float, typer.Option(help="Seconds in which a request must have arrived.")] = 10.0,
    rate: Annotated[float, typer.Option(help="Requests a second of one client; 0 for no limit.")] = 0.0,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows that are predicted together, at most.")] = 1024,
    connections: Annotated[int, typer.Option(min=1, help="Connections at once; more are answered with 503.")] = 1000,
    jobs: Jobs = 1,
) -> None:
    """Answer HTTP requests with the best labels of rows or texts.

    POST /predict takes JSON such as {"rows": [[0.1, 0, 2]], "k": 3} or {"texts": ["fresh bread"]}; /docs describes it,
    /health and /metrics watch it. Ctrl-C or SIGTERM finishes what was begun.
    """
    from widemargin.cli import _serve

    limits = {
        "body_mb": body_mb,
        "body_seconds": body_seconds,
        "requests_per_second": rate,
        "batch_rows": batch_rows,
    }
    _serve.run(model, host, port, token, limits, connections=connections, jobs=jobs)
