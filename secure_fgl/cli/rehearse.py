"""``secure-fgl audit rehearse``: a plan played, attacked and thrown away, before it runs."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb
from secure_fgl.cli.attack import Profile
from secure_fgl.cli.plan import ConfigArgument, SetOption

if TYPE_CHECKING:
    from audits.elsewhere.rehearsal import Rehearsal


@verb
def rehearse(
    config: ConfigArgument,
    settings: SetOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    plugins: PluginOption = [],  # noqa: B006
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder, in place of the configuration's."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rehearsal's verdicts here.")
    ] = None,
    profile: Annotated[
        Profile, typer.Option(help="quick: the first round. default: all rounds.")
    ] = Profile.quick,
    format: FormatOption = Format.table,
) -> int:
    """Play a plan on the data that are here, capture all of it, and attack that.

    For policies that keep nothing for audits, and before a run. Of own data one
    site's folder is enough: the other clients are drawn from what its records
    look like. All parties are one process; nothing is sent, no budget is used.

    What was captured lies in a temporary folder for you alone, locked, and is
    removed with its keys at the end, on an error and on Ctrl-C.

    A rehearsal is another run: audit report RUN --rehearsal FILE quotes its
    verdicts beside what was not tested, never in its place.

    Exits 0 whatever the attacks found.
    """
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.config import Config
    from secure_fgl.errors import OK, UsageError
    from secure_fgl.store.files import create

    configuration = Config.load(config, settings)
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already.", fix="choose another --out")
    with contextlib.redirect_stdout(sys.stderr):
        from secure_fgl.elsewhere.rehearsing import rehearse as played

        found = played(configuration, data=data, plugins=plugins, profile=profile.value, tell=say)
    if out is not None:
        try:
            create(out, found.text().encode())
        except OSError as error:
            raise UsageError(
                f"{out} cannot be written ({error.strerror}).", fix="choose another --out"
            ) from error
    if format is Format.json:
        print_json(found.text())
    else:
        _print(found)
    return OK


def _print(found: Rehearsal) -> None:
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli.attack import print_found

    say(f"{found.heading} of the plan {found.plan_digest}", style="bold", stderr=False)
    print_found(found.attacks, found.attacks.not_tested, "")
    for fact in (*found.differs, *found.cannot):
        say(fact, stderr=False)
