"""``secure-fgl runs``: the runs that lie in a folder."""

from __future__ import annotations

import typer

from secure_fgl.cli._shared.verb import EXAMPLE
from secure_fgl.cli.runs_compare import runs_compare
from secure_fgl.cli.runs_delete import runs_delete
from secure_fgl.cli.runs_list import runs_list

app = typer.Typer(
    no_args_is_help=True,
    help="Look at the runs that lie in a folder: list them, compare two, delete with keys.",
    epilog=EXAMPLE["runs"],
)

app.command("list", epilog=EXAMPLE["runs list"])(runs_list)
app.command("compare", epilog=EXAMPLE["runs compare"])(runs_compare)
app.command("delete", epilog=EXAMPLE["runs delete"])(runs_delete)
