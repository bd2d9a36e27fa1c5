"""The public Python names, from their docstrings and signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import secure_fgl
from scripts.house_rules import FLOORS
from scripts.site.reference.words import markdown

_WIDE = 88
_EXAMPLES = Path(__file__).resolve().parents[3] / "docs/api.md"

HEAD = """# Python

What `secure_fgl` exports is public. All other packages and names may change without notice. The
examples are parts of [In Python](../api.md), whose blocks a test runs one after the other.

```python
import secure_fgl
```
"""


def api() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(_name(name) for name in secure_fgl.__all__)])


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that stand in our own code, by name."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] in FLOORS:
            found |= {n: o for n, o in vars(base).items() if not n.startswith("_")}
    for name, one in found.items():
        function = getattr(one, "func", None) or getattr(one, "fget", None)
        function = function or getattr(one, "__func__", one)
        if inspect.isfunction(function) and function.__doc__:
            yield name, one


def example(name: str) -> str:
    """Return the shortest block of docs/api.md that uses a name beyond importing it.

    Raises:
        LookupError: there is none.
    """
    blocks = re.findall(r"```python\n(.*?)```", _EXAMPLES.read_text("utf-8"), flags=re.S)
    fitting = [
        block
        for block in blocks
        if re.search(rf"\b{name}\b", re.sub(r"^(from|import) .*$", "", block, flags=re.M))
    ]
    if not fitting:
        raise LookupError(f"docs/api.md has no example of {name}")
    return f"```python\n{min(fitting, key=len)}```\n"


def _name(name: str) -> str:
    one = getattr(secure_fgl, name)
    parts = [f"## {name}\n"]
    if not (isinstance(one, type) and hasattr(one, "model_fields")):
        parts.append(_code(name, one))
    parts += [markdown(one.__doc__), "**Example**\n", example(name)]
    if isinstance(one, type):
        parts += [_member(name, member, found) for member, found in members(one)]
    return "\n".join(parts)


def _member(owner: str, name: str, found: Any) -> str:
    heading = f"### {owner}.{name}\n"
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    elif not inspect.isfunction(found):  # a property, cached or not
        function = getattr(found, "func", None) or found.fget
        return "\n".join([heading, "A property.\n", markdown(function.__doc__)])
    return "\n".join([heading, _code(name, found), markdown(found.__doc__)])


def _code(name: str, one: Any) -> str:
    """Return a signature as a block of code; a parameter a line where it is long."""
    signature = inspect.signature(one)
    given = [p for n, p in signature.parameters.items() if n not in ("self", "cls")]
    shown = str(signature.replace(parameters=given)).replace("'", "")
    line = f"{name}{shown}"
    if len(line) > _WIDE:
        starred, lines = False, []
        for one_given in given:
            if one_given.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
                starred = True
                lines.append("    *,")
            lines.append(f"    {one_given},".replace("'", ""))
        back = str(signature.replace(parameters=[])).replace("'", "")
        line = "\n".join([f"{name}(", *lines, back.removeprefix("(")])
    return f"```python\n{line}\n```\n"
