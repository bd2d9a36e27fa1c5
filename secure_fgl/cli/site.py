"""``secure-fgl site``: what one party of a run between organisations does at its own site."""

from __future__ import annotations

import typer

from secure_fgl.cli._shared.verb import EXAMPLE, verb
from secure_fgl.cli.carry import carry
from secure_fgl.cli.forget import forget
from secure_fgl.cli.hand_over import hand_over
from secure_fgl.cli.join import join
from secure_fgl.cli.new import new
from secure_fgl.cli.renew import renew
from secure_fgl.cli.site_check import site_check
from secure_fgl.cli.site_model import site_model
from secure_fgl.cli.start import start
from secure_fgl.cli.stop import stop
from secure_fgl.cli.sweep import sweep
from secure_fgl.cli.waive import waive

app = typer.Typer(epilog=EXAMPLE["site"])


@app.callback(invoke_without_command=True)
def site(context: typer.Context) -> None:
    """Take part in a run between organisations: what one party does at its own
    site.

    Without a command it says what is next at each party folder: in this folder,
    in ./parties, and where SECURE_FGL_PARTY says.
    """
    if context.invoked_subcommand is None:
        _next(verbose=False, no_color=False, context=context)


@verb
def _next(context: typer.Context) -> int:
    import time

    from secure_fgl.sites.shown import next_steps, parties_here

    parties = parties_here()
    if not parties:
        typer.echo(context.get_help())
    for party in parties:
        for line in next_steps(party, time.time()):
            typer.echo(line)
    return 0


app.command("forget", epilog=EXAMPLE["forget"])(forget)
app.command("hand-over", epilog=EXAMPLE["hand-over"])(hand_over)
app.command("new", epilog=EXAMPLE["new"])(new)
app.command("model", epilog=EXAMPLE["site-model"])(site_model)
app.command("join", epilog=EXAMPLE["join"])(join)
app.command("carry", epilog=EXAMPLE["carry"])(carry)
app.command("renew", epilog=EXAMPLE["renew"])(renew)
app.command("check", epilog=EXAMPLE["site check"])(site_check)
app.command("waive", epilog=EXAMPLE["waive"])(waive)
app.command("start", epilog=EXAMPLE["start"])(start)
app.command("stop", epilog=EXAMPLE["stop"])(stop)
app.command("sweep", epilog=EXAMPLE["sweep"])(sweep)
