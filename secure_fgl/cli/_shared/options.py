"""Options that several verbs take."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["PluginOption"]

PluginOption = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        metavar="FILE|NAME",
        help="Code of your own: an algorithm, a model or data in one file, or the name of an "
        "installed one. Trusted code; may be given several times.",
    ),
]
