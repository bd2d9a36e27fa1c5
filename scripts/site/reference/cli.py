"""The commands, from what typer shows as their help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from scripts.site.reference.words import cell, table
from secure_fgl.cli._shared.app import app

HEAD = """# Command line

Every command takes `--verbose` (tracebacks, which may quote data), `--no-color` and `--help`. Data
go to stdout, words about them to stderr. [Exit codes](exit-codes.md) mean the same everywhere.
"""

_COMMON = {"--verbose", "--no-color", "--help"}


def commands(command: Any = None, name: str = "secure-fgl") -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with its whole name."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from commands(one, f"{name} {word}")


def cli() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(_command(name, one) for name, one in commands())])


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([name, *(_metavar(one) for one in arguments), "[OPTIONS]"])
    rows = [(f"`{_metavar(one)}`", getattr(one, "help", "") or "") for one in arguments]
    for one in options:
        if not _COMMON & set(one.opts):
            names = ", ".join(f"`{word}`" for word in one.opts)
            rows.append((f"{names} {_value(one)}".strip(), f"{one.help or ''}{_default(one)}"))
    parts = [f"## {name}\n", _plain(command.help), f"```text\n{usage}\n```\n"]
    if rows:
        parts.append(table(("", "what it is"), rows))
    lines = [line for line in (command.epilog or "").split("\n\n") if "secure-fgl" in line]
    if lines:
        parts += ["For example:\n", "```sh\n" + "\n".join(lines) + "\n```\n"]
    return "\n".join(parts)


def _plain(text: str | None) -> str:
    """Return a help text without the marks of rich."""
    text = re.sub(r"\[/?(?:bold|dim|italic)\]", "", text or "")
    return "\n\n".join(cell(one) for one in text.split("\n\n")) + "\n"


def _metavar(one: Any) -> str:
    word = str(one.metavar or one.name.upper())
    return word if one.required else f"[{word.strip('[]')}]"


def _value(one: Any) -> str:
    if one.is_flag:
        return ""
    words = [str(each.value) for each in type(one.default)] if _chosen(one) else []
    return f"`{one.metavar or '|'.join(words) or 'VALUE'}`"


def _chosen(one: Any) -> bool:
    """Tell whether an option takes one of a few words."""
    return isinstance(one.default, Enum)


def _default(one: Any) -> str:
    value = getattr(one.default, "value", one.default)
    if one.is_flag or callable(value) or value in (None, "", (), []):
        return ""
    return f" Default: `{value}`."
