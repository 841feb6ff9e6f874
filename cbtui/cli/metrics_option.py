"""`--metrics PORT`, of every command that runs an engine."""

from __future__ import annotations

from typing import Annotated

import typer

Metrics = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        min=0,
        max=65535,
        metavar="PORT",
        help="Answer a Prometheus server at http://127.0.0.1:PORT/metrics meanwhile; 0: any free port.",
    ),
]
