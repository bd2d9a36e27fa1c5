"""``secure-fgl broker``: the server that carries runs between organisations."""

from __future__ import annotations

import typer

from secure_fgl.cli._shared.verb import EXAMPLE
from secure_fgl.cli.broker_check import broker_check
from secure_fgl.cli.broker_config import broker_config
from secure_fgl.cli.broker_leaf import broker_leaf

app = typer.Typer(
    no_args_is_help=True,
    help="Set up the server (NATS) that carries runs between organisations, and check it.",
    epilog=EXAMPLE["broker"],
)

app.command("config", epilog=EXAMPLE["broker config"])(broker_config)
app.command("check", epilog=EXAMPLE["broker check"])(broker_check)
app.command("leaf", epilog=EXAMPLE["broker leaf"])(broker_leaf)
