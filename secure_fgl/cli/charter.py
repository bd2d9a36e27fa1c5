"""``secure-fgl charter``: what all parties of a run agree on before anything is sent."""

from __future__ import annotations

import typer

from secure_fgl.cli._shared.verb import EXAMPLE
from secure_fgl.cli.draw import draw
from secure_fgl.cli.merge import merge
from secure_fgl.cli.refuse import refuse
from secure_fgl.cli.show import show
from secure_fgl.cli.sign import sign

app = typer.Typer(
    no_args_is_help=True,
    help="Agree on a run between organisations: draw up a charter, read it, sign or refuse it.",
    epilog=EXAMPLE["charter"],
)

app.command("draw", epilog=EXAMPLE["draw"])(draw)
app.command("show", epilog=EXAMPLE["show"])(show)
app.command("sign", epilog=EXAMPLE["sign"])(sign)
app.command("refuse", epilog=EXAMPLE["refuse"])(refuse)
app.command("merge", epilog=EXAMPLE["merge"])(merge)
