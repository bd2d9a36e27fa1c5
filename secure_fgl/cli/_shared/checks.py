"""How checks of a site or a machine are shown, and which exit code they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from secure_fgl.cli._shared.output import WORDS, cell, console, grid, print_json
from secure_fgl.cli._shared.verb import Format

if TYPE_CHECKING:
    from secure_fgl.sites.checks import Line

__all__ = ["show"]


def show(lines: Sequence[Line], format: Format, *, strict: bool, **facts: Any) -> int:
    """Print the outcomes on stdout and return the exit code.

    Args:
        lines: one a check.
        format: a table or JSON.
        strict: 4 where something was not checked.
        facts: that stand in the JSON before the checks.
    """
    if format is Format.json:
        print_json({**facts, "checks": [_document(line) for line in lines]})
        return _code(lines, strict=strict)
    table = grid(["Check", "", "What was found, and what to do"])
    for line in lines:
        status, todo = str(line.status), f"What to do: {line.todo}" if line.todo else ""
        said = "\n".join(filter(None, (line.said, todo)))
        table.add_row(cell(line.name), cell(status, WORDS[status]), cell(said))
    console(stderr=False).print(table)
    return _code(lines, strict=strict)


def _document(line: Line) -> dict[str, str]:
    return {"check": line.name, "status": str(line.status), "said": line.said, "todo": line.todo}


def _code(lines: Sequence[Line], *, strict: bool) -> int:
    from secure_fgl.errors import INCONCLUSIVE, OK
    from secure_fgl.sites.checks import Status

    for line in lines:
        if line.code:
            return line.code
    unseen = any(line.status is Status.NOT_CHECKED for line in lines)
    return INCONCLUSIVE if strict and unseen else OK
