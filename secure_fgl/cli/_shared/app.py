"""All verbs under one name."""

from __future__ import annotations

from typing import Annotated

import typer

from secure_fgl import __version__
from secure_fgl.cli._shared.verb import EXAMPLE, NoColor, Settable, Verbs, example
from secure_fgl.cli.approve import approve
from secure_fgl.cli.audit import app as audit
from secure_fgl.cli.broker import app as broker
from secure_fgl.cli.charter import app as charter
from secure_fgl.cli.check import check
from secure_fgl.cli.doctor import doctor
from secure_fgl.cli.evaluate import evaluate
from secure_fgl.cli.init import init
from secure_fgl.cli.list import catalogue
from secure_fgl.cli.model import app as model
from secure_fgl.cli.plan import plan
from secure_fgl.cli.predict import predict
from secure_fgl.cli.run import run
from secure_fgl.cli.runs import app as runs
from secure_fgl.cli.schema import schema
from secure_fgl.cli.site import app as site
from secure_fgl.cli.status import status

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=example(
        "secure-fgl plan examples/banks.yaml --out plan.json",
        "secure-fgl run examples/banks.yaml --plan plan.json --out runs/first",
        "secure-fgl audit verify runs/first",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"secure-fgl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
    no_color: NoColor = False,
) -> None:
    """Federated graph learning in which each message of a client leaves by one audited door.

    Plan what would leave, run it, and prove afterwards that nothing else did.
    """


app.command("init", epilog=EXAMPLE["init"])(init)
app.command("plan", cls=Settable, epilog=EXAMPLE["plan"])(plan)
app.command("approve", epilog=EXAMPLE["approve"])(approve)
app.command("run", cls=Settable, epilog=EXAMPLE["run"])(run)
app.command("check", cls=Settable, epilog=EXAMPLE["check"])(check)
app.add_typer(audit, name="audit")
app.add_typer(runs, name="runs")
app.add_typer(model, name="model")
app.add_typer(charter, name="charter")
app.add_typer(site, name="site")
app.add_typer(broker, name="broker")
app.command("status", epilog=EXAMPLE["status"])(status)
app.command("predict", epilog=EXAMPLE["predict"])(predict)
app.command("evaluate", epilog=EXAMPLE["evaluate"])(evaluate)
app.command("list", epilog=EXAMPLE["list"])(catalogue)
app.command("schema", epilog=EXAMPLE["schema"])(schema)
app.command("doctor", epilog=EXAMPLE["doctor"])(doctor)
