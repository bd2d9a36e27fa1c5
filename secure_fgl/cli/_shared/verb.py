"""What every verb has in common: its two switches, its errors, its exit code."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from secure_fgl.errors import check_platform
from secure_fgl.reasons import diverged, explain


class Format(StrEnum):
    """For people, or for machines."""

    table = "table"
    json = "json"


class Log(StrEnum):
    """How a command tells on stderr what it does."""

    text = "text"
    json = "json"


Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Show tracebacks. They may quote data: read before passing on."),
]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="Print without colours, as NO_COLOR does.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="For people or for machines.")]


def example(*lines: str) -> str:
    """Return an epilog that shows commands, one per line."""
    # Typer joins the lines of a paragraph, so each command is a paragraph of its own.
    return "\n\n".join(["[bold]Example[/bold]", *lines])


EXAMPLE = {
    "init": example(
        "secure-fgl init pilot",
        "secure-fgl init pilot --task rating",
        "secure-fgl init pilot --pilot",
        "secure-fgl init --example banks",
    ),
    "plan": example(
        "secure-fgl plan examples/banks.yaml --out plan.json",
        "secure-fgl plan examples/banks.yaml --against plan.json",
    ),
    "approve": example(
        "secure-fgl approve --key dpo.pem",
        "secure-fgl approve plan.json --as dpo --key dpo.pem --until 2027-01-31",
    ),
    "run": example(
        "secure-fgl run examples/banks.yaml",
        "secure-fgl run examples/banks.yaml --set algorithm.rounds=5 --out runs/short",
        "secure-fgl run examples/banks.yaml --log json --format json 2> run.jsonl",
        "secure-fgl run examples/banks.yaml --track tensorboard:logs --checkpoint-every 5",
        "secure-fgl run pilot/config.yaml --set transport.name=broker --out runs/rehearsal",
    ),
    "check": example("secure-fgl check my_fedprox.py", "secure-fgl check my_fedprox.py --strict"),
    "model": example(
        "secure-fgl model export runs/first --to model.npz",
        "secure-fgl model export runs/first --site north --to north.onnx",
    ),
    "model forget": example("secure-fgl model forget runs/first"),
    "predict": example("secure-fgl predict runs/first --site pilot/data/north --out new.csv"),
    "evaluate": example("secure-fgl evaluate runs/first --site pilot/data/north"),
    "audit": example("secure-fgl audit verify runs/first"),
    "report": example(
        "secure-fgl audit report runs/first --format html,csv --out evidence",
        "secure-fgl audit report runs/second --baseline runs/first --waivers accepted.yaml",
    ),
    "attack": example(
        "secure-fgl audit attack runs/first",
        "secure-fgl audit attack runs/first --profile default --attacks A04,A09 --strict",
    ),
    "diff": example(
        "secure-fgl audit diff runs/first runs/second",
        "secure-fgl audit diff approved/report.json runs/second --fail-on medium --format json",
    ),
    "explain": example(
        "secure-fgl audit explain A05",
        "secure-fgl audit explain F03 --run runs/first",
        "secure-fgl audit explain exit codes",
    ),
    "export": example(
        "secure-fgl audit export runs/first --to cnil-pia --out pia-draft.json",
        "secure-fgl audit export runs/first --to art30-csv",
        "secure-fgl audit export runs/first --to junit --out audit-junit.xml",
    ),
    "verify": example(
        "secure-fgl audit verify runs/first --heads heads-held-by-the-clients.json",
        "secure-fgl audit verify bundle.zip --trust keys-from-elsewhere.json",
        "secure-fgl audit verify /srv/party --run RUN",
    ),
    "bundle": example(
        "openssl genpkey -algorithm ed25519 -out auditor.pem",
        "secure-fgl audit bundle runs/first --key auditor.pem --out bundle.zip",
    ),
    "gather": example(
        "secure-fgl audit gather north.zip south.zip office.zip --out runs/pilot",
        "secure-fgl audit verify runs/pilot --heads heads-held-by-the-clients.json",
    ),
    "rehearse": example(
        "secure-fgl audit rehearse examples/banks.yaml --set policy=strict --out rehearsal.json",
        "secure-fgl audit report runs/first --rehearsal rehearsal.json",
    ),
    "release": example(
        "secure-fgl audit release runs/first --require A05,A09",
        "secure-fgl audit release runs/first --require A05 --margin 0.02 --waivers accepted.yaml "
        "--out release.dsse.json --key auditor.pem",
    ),
    "hand-over": example("secure-fgl site hand-over /srv/party --out north.zip"),
    "site-model": example(
        "secure-fgl site model /srv/party --out model.npz",
        "secure-fgl predict model.npz --site /srv/data/hospital-north",
    ),
    "forget": example(
        "secure-fgl site forget /srv/party --captures",
        "secure-fgl site forget /srv/party --all",
    ),
    "waive": example(
        "secure-fgl site waive /srv/party --attack A05 --owner 'M. Bloch' "
        "--reason 'members are public' --until 2027-03-31"
    ),
    "account": example(
        "secure-fgl audit account runs/first",
        "secure-fgl audit account runs/first --format json",
        "secure-fgl audit account runs/first --missing 0..3 --delta 1e-6",
        "secure-fgl audit account runs/first --anchors notes-kept-by-the-aggregator",
        "secure-fgl audit account --store",
    ),
    "site": example("secure-fgl site join /srv/party charter.json"),
    "new": example(
        "secure-fgl site new /srv/party --name hospital-north --organisation 'Hospital North' "
        "--role client"
    ),
    "join": example("secure-fgl site join /srv/party charter.json"),
    "site check": example(
        "secure-fgl site check /srv/party", "secure-fgl site check /srv/party --broker"
    ),
    "renew": example("secure-fgl site renew /srv/party"),
    "carry": example("secure-fgl site carry /srv/carrier --socket /run/meet/socket --run RUN"),
    "start": example(
        "secure-fgl site start /srv/party",
        "secure-fgl site start /srv/party --carrier-user carrier --socket /run/meet/socket",
    ),
    "stop": example("secure-fgl site stop /srv/party"),
    "sweep": example("secure-fgl site sweep /srv/party"),
    "broker": example("secure-fgl broker config charter.json --broker /srv/broker"),
    "broker config": example("secure-fgl broker config charter.json --broker /srv/broker"),
    "broker leaf": example(
        "secure-fgl broker leaf /srv/party --hub fl.example.org:7422 --broker /srv/leaf"
    ),
    "broker check": example("secure-fgl broker check /srv/party"),
    "status": example(
        "secure-fgl status /srv/party --watch",
        "secure-fgl status /srv/party --format prometheus",
    ),
    "charter": example("secure-fgl charter show charter.json"),
    "draw": example(
        "secure-fgl charter draw config.yaml facts/*.facts.json --server fl.example.org "
        "--broker /srv/broker --out charter.json"
    ),
    "show": example(
        "secure-fgl charter show charter.json",
        "secure-fgl charter show charter.json --against last-charter.json",
    ),
    "sign": example("secure-fgl charter sign charter.json --party /srv/party"),
    "refuse": example(
        "secure-fgl charter refuse charter.json --party /srv/party --reason 'two rounds too many'"
    ),
    "merge": example("secure-fgl charter merge north.json south.json --out charter.json"),
    "runs": example("secure-fgl runs list"),
    "runs list": example("secure-fgl runs list runs --format json"),
    "runs compare": example("secure-fgl runs compare runs/first runs/second"),
    "runs delete": example("secure-fgl runs delete runs/first"),
    "doctor": example("secure-fgl doctor"),
    "list": example("secure-fgl list algorithms"),
    "schema": example("secure-fgl schema policy > policy.schema.json"),
}


def verb(function: Callable[..., int]) -> Callable[..., None]:
    """Make a command of a function that returns an exit code.

    The command takes ``--verbose`` and ``--no-color`` besides. What the function raises is printed
    as an error, never as a traceback unless asked for, and becomes the exit code.
    """

    @functools.wraps(function)
    def command(*arguments: Any, verbose: bool, no_color: bool, **options: Any) -> None:
        try:
            check_platform()
            code = function(*arguments, **options)
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt as stopped:
            code = _interrupted(stopped)
        except Exception as error:
            code = _failed(error, verbose=verbose)
        raise typer.Exit(code)

    signature = inspect.signature(function, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    switches = {"verbose": Verbose, "no_color": NoColor}
    added = [
        inspect.Parameter(n, keyword, default=False, annotation=a) for n, a in switches.items()
    ]
    given = [p.replace(kind=keyword) for p in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=[*given, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, **switches}
    return command


def _interrupted(stopped: KeyboardInterrupt) -> int:
    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import INTERRUPTED

    say(f"Interrupted. {stopped}".rstrip(), style="yellow")
    return INTERRUPTED


def _failed(error: Exception, *, verbose: bool) -> int:
    from secure_fgl.cli._shared.output import say

    if verbose:
        say("".join(traceback.format_exception(error)).rstrip())
    for number, line in enumerate(explain(error)):
        say(line, style="" if number else "bold red")
    return exit_code(error)


def exit_code(error: Exception) -> int:
    """Return the exit code of an error.

    A refusal has the code of what made the peer refuse, where that is at hand. A ledger that cannot
    be written (a full disk) is 1: nothing is wrong with the command, so it is no usage error. What
    another version wrote is 2: that program reads it. As evidence it is 5, for it is not verified.
    """
    from protocols.errors import (
        BudgetExceeded,
        EvidenceError,
        NotInPlan,
        OtherVersion,
        PolicyError,
        Refused,
        RemoteProtocolError,
        SecureFglError,
    )
    from secure_fgl.errors import (
        BROKEN,
        BUDGET,
        DRIFT,
        INTERNAL,
        USAGE,
        PlanDrift,
        UsageError,
    )

    reason = error.__cause__ if isinstance(error, Refused) else None
    if isinstance(reason, SecureFglError):
        return exit_code(reason)
    if isinstance(error, (PlanDrift, NotInPlan)):
        return DRIFT
    if isinstance(error, EvidenceError):
        return BROKEN
    if isinstance(error, BudgetExceeded):
        return BUDGET
    usage = isinstance(error, (UsageError, PolicyError, RemoteProtocolError, OtherVersion))
    return USAGE if usage or diverged(error) else INTERNAL


# --- Groups of commands: an unknown one is answered with the command that was meant ---

_MEANT = {
    **dict.fromkeys(("train", "fit", "simulate", "start"), "run"),
    **dict.fromkeys(("report", "verify", "attack", "explain", "bundle"), "audit {}"),
    "export": "model export",
    "show": "charter show",
    "help": "--help",
}
"""What people type for a command of another name."""


class Verbs(TyperGroup):
    """The first group, whose unknown commands may be those of another group or of another name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command as usual; of one that is not there say what was meant."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            # Some versions of typer bring their own copy of click: the class has no fixed place.
            if type(error).__name__ not in {"UsageError", "NoSuchCommand"} or not args:
                raise
            from protocols.strict import nearest
            from secure_fgl.cli._shared.output import say
            from secure_fgl.errors import USAGE

            word, known = args[0][:40], self.list_commands(ctx)
            meant = _MEANT.get(word, "").format(word)
            say(f"Error: There is no command {word!r}.", style="bold red")
            say(f"What to do: {f'did you mean {meant!r}?' if meant else nearest(word, known)}")
            raise typer.Exit(USAGE) from None


# --- Commands with ``--set``: a setting that was typed as an option is answered with its key ---


class Settable(TyperCommand):
    """A command whose unknown options may be settings, as in ``--rounds 5``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual; of a setting typed as an option say how it is set."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Some versions of typer bring their own copy of click: the class has no fixed place.
            named = getattr(error, "option_name", "") if _is_unknown(error) else ""
            key = _key(named.lstrip("-").replace("-", "_"))
            if not key:
                raise
            from secure_fgl.cli._shared.output import say
            from secure_fgl.errors import USAGE

            say(f"Error: There is no option {named}.", style="bold red")
            say("Why: settings of the configuration are changed with --set")
            say(f"What to do: --set {key}=VALUE")
            raise typer.Exit(USAGE) from None


def _is_unknown(error: Exception) -> bool:
    return type(error).__name__ == "NoSuchOption"


def _key(word: str) -> str:
    """Return where a setting of this name stands; empty if none does, or several."""
    from protocols.strict import inner_keys
    from secure_fgl.config import Config

    if word in Config.model_fields:
        return f"{word}.name" if f"{word}.name" in inner_keys(Config, "name") else word
    found = inner_keys(Config, word)
    return found[0] if len(found) == 1 else ""
