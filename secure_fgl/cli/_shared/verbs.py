"""Groups of commands: an unknown one is answered with the command that was meant."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

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
