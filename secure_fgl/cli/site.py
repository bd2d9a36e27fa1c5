"""``secure-fgl site``: what one party of a run between organisations does at its own site."""

from __future__ import annotations

import typer

from secure_fgl.cli._shared.verb import EXAMPLE
from secure_fgl.cli.hand_over import hand_over
from secure_fgl.cli.join import join
from secure_fgl.cli.new import new
from secure_fgl.cli.start import start
from secure_fgl.cli.stop import stop

app = typer.Typer(
    no_args_is_help=True,
    help="Take part in a run between organisations: what one party does at its own site.",
    epilog=EXAMPLE["site"],
)

app.command("hand-over", epilog=EXAMPLE["hand-over"])(hand_over)
app.command("new", epilog=EXAMPLE["new"])(new)
app.command("join", epilog=EXAMPLE["join"])(join)
app.command("start", epilog=EXAMPLE["start"])(start)
app.command("stop", epilog=EXAMPLE["stop"])(stop)
