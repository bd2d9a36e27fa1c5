"""Commands with ``--set``: a setting that was typed as an option is answered with its key."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


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
