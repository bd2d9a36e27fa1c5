"""``secure-fgl plan``: what would leave each party, before any data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from secure_fgl.federation import Federation

ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML configuration.")]
SetOption = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one setting; may be given several times."
    ),
]


@verb
def plan(
    config: ConfigArgument,
    settings: SetOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    plugins: PluginOption = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Write the plan here, for approval.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="An approved plan; anything beyond it exits 6.")
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Show which epsilon can say anything, under a client's own noise."
        ),
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Show what would leave each party, who would learn what, and the budget.

    No feature, label or edge is read.
    """
    from secure_fgl.cli._shared.inputs import load_plan
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.cli._shared.plan_tables import print_plan, say_first
    from secure_fgl.config import Config
    from secure_fgl.errors import UsageError

    if out is not None and against is not None and out.resolve() == against.resolve():
        raise UsageError(
            "--out would replace the plan that --against compares with.",
            fix="choose another --out",
        )
    approved = load_plan(against) if against is not None else None
    configuration = Config.load(config, settings)
    from secure_fgl.devices import told
    from secure_fgl.federation import Federation

    federation = Federation.from_config(configuration, plugins)
    if calibrate:
        return _calibrate(federation, format)
    wanted = federation.plan()
    if out is not None:
        _write(out, wanted.text())
    if format is Format.json:
        print_json(wanted.text())
    else:
        say_first(wanted, federation)
        print_plan(wanted, stderr=False)
        say(f"Model settings: {federation.training()}.")
        if federation.config.device != "cpu":
            say(f"Clients train on: {told(federation.config)}.")
    if out is not None:
        say(f"Plan written to {out}, digest {wanted.digest}")
    if approved is None:
        return 0
    from protocols.plan.plan import drift

    return _compare(drift(approved, wanted), against)


def _calibrate(federation: Federation, format: Format) -> int:
    """Print what the mean of all clients is worth for each epsilon."""
    from secure_fgl.calibration import calibration
    from secure_fgl.cli._shared.plan_tables import print_calibration

    print_calibration(list(calibration(federation)), as_json=format is Format.json)
    return 0


def _write(path: Path, text: str) -> None:
    from secure_fgl.errors import UsageError
    from secure_fgl.store.files import replace

    try:
        replace(path, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"The plan cannot be written to {path} ({error.strerror}).", fix="choose another --out"
        ) from error


def _compare(differences: list[str], against: Path | None) -> int:
    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import DRIFT

    if not differences:
        say(f"Nothing beyond {against}.", style="green")
        return 0
    say(f"{len(differences)} difference(s) beyond {against}:", style="bold red")
    for difference in differences:
        say(f"  {difference}")
    say("What to do: have the new plan approved before anything is run.")
    return DRIFT
