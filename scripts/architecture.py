"""Draw docs/architecture.svg and the tables of docs/architecture.md from what the code says.

Run from the repository's root::

    python -m scripts.architecture            # write both anew
    python -m scripts.architecture --check    # exits 1 if one of them is not what the code says

Floors come from the import contract of pyproject.toml, roles from `protocols/roles`, disclosures
from `protocols/disclosures`, and routes from the plans of `RUNS`.
"""

from __future__ import annotations

import argparse
import ast
import html
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap

from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE
from secure_fgl.config import Config
from secure_fgl.federation import Federation

ROOT = Path(__file__).resolve().parent.parent
PICTURE, PAGE = ROOT / "docs" / "architecture.svg", ROOT / "docs" / "architecture.md"
RATINGS = (
    "data.name=synthetic_ratings",
    "data.options={users: 8, items: 12, each: 8}",
    "data.split=[0.6, 0.2, 0.2]",
    "data.partition={name: user_per_client, clients: 8}",
    "model.name=user_gat",
    "algorithm.options={fed_per_gnn: {expand_after: 1}}",
)
RUNS: tuple[tuple[str, ...], ...] = (
    ("algorithm.name=fed_avg", "policy=he"),
    ("algorithm.name=fed_pub", "policy=pilot"),
    ("algorithm.name=fed_ego", "policy=shuffled", "model.name=ego_mlp"),
    ("algorithm.name=fed_per_gnn", "policy=examples/matched_policy.yaml", *RATINGS),
)
"""Settings over examples/banks.yaml; between them these plans show every role at work."""
WIDTH, EDGE = 960, 24
INK, SOFT, LINE, FILL = "#1c2430", "#55606e", "#8a94a3", "#eef2f7"
Routes = dict[tuple[str, str], list[str]]


# --- what the code says ---------------------------------------------------------------------------


def floors() -> list[tuple[str, str]]:
    """Return the floors, the highest first, each with the first sentence of its docstring."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (layers,) = [
        c["layers"] for c in settings["tool"]["importlinter"]["contracts"] if "layers" in c
    ]
    return [(name, sentence(ROOT / name / "__init__.py")) for name in layers]


def folders(floor: str) -> list[tuple[str, str]]:
    """Return a floor's folders, each with the first sentence of its docstring."""
    found = sorted(p.parent for p in (ROOT / floor).glob("*/__init__.py"))
    return [(f"{floor}/{p.name}", sentence(p / "__init__.py")) for p in found if p.name[0] != "_"]


def sentence(file: Path) -> str:
    """Return the first sentence of a file's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split())
    return re.split(r"(?<=\.)\s", f"{text} ")[0].rstrip(".").replace("``", "`")


def works(disclosure: Disclosure, role: Role) -> bool:
    """Tell whether a disclosure's folder holds a part for a role."""
    return facet(disclosure, str(role)) is not None


@cache
def routes() -> Routes:
    """Return what goes from role to role in the plans of `RUNS`: parts of the layer, sorted."""
    found: dict[tuple[str, str], set[str]] = {}
    for settings in RUNS:
        config = Config.load(ROOT / "examples" / "banks.yaml", [*settings, "resume=false"])
        for item in Federation.from_config(config).plan().items:
            found.setdefault((item.sender, item.recipient), set()).add(str(item.part))
    return {route: sorted(parts, key=_disclosures_first) for route, parts in sorted(found.items())}


def _disclosures_first(part: str) -> tuple[bool, str]:
    return (not part.isupper(), part)


# --- the picture ----------------------------------------------------------------------------------


def _text(x: float, y: float, said: str, *, size: int = 13, **facts: str) -> str:
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in facts.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{more}>{html.escape(said)}</text>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{FILL}" '
        f'stroke="{LINE}"/>'
    )


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{INK}" '
        'marker-end="url(#tip)"/>'
    )


def _floors(top: float) -> tuple[list[str], float]:
    parts, y = [_text(EDGE, top, "Floors: imports fall", size=16, font_weight="bold")], top + 16
    for place, (name, said) in enumerate(floors()):
        inset = 22 * place
        parts.append(_box(EDGE + inset, y, WIDTH - 2 * EDGE - inset, 34))
        parts.append(_text(EDGE + inset + 14, y + 22, name, font_weight="bold"))
        parts.append(_text(EDGE + 225, y + 22, said, fill=SOFT))
        y += 42
    return parts, y


def _matrix(top: float) -> tuple[list[str], float]:
    title = "Who works for which disclosure; the gateway and a view are all that the others need"
    parts, roles = [_text(EDGE, top, title, size=16, font_weight="bold")], list(Role)
    step = (WIDTH - 2 * EDGE - 150) / len(roles)
    for column, role in enumerate(roles):
        x = EDGE + 150 + step * (column + 0.5)
        parts.append(_text(x, top + 30, role.replace("_", " "), text_anchor="middle"))
    y = top + 40
    for disclosure in Disclosure:
        parts.append(_text(EDGE, y + 17, str(disclosure)))
        rule = f'<line x1="{EDGE}" y1="{y:g}" x2="{WIDTH - EDGE}" y2="{y:g}" stroke="{FILL}"/>'
        parts.append(rule)
        for column, role in enumerate(roles):
            if works(disclosure, role):
                x = EDGE + 150 + step * (column + 0.5)
                parts.append(f'<circle cx="{x:g}" cy="{y + 13:g}" r="5" fill="{INK}"/>')
        y += 26
    return parts, y


def _label(x: float, y: float, parts: Sequence[str], width: int, *, up: bool) -> list[str]:
    lines = wrap(", ".join(parts), width)
    first = y - 6 - 15 * (len(lines) - 1) if up else y + 17
    return [
        _text(x, first + 15 * n, line, size=12, text_anchor="middle", fill=SOFT)
        for n, line in enumerate(lines)
    ]


def _between(x1: float, x2: float, y: float, there: Sequence[str], back: Sequence[str]) -> str:
    """Return two arrows, each with what goes along it; what goes to everybody stands with it."""
    middle, width, found = (x1 + x2) / 2, int((x2 - x1) / 6.6), list[str]()
    if there:
        found += [_arrow(x1, y - 6, x2, y - 6), *_label(middle, y - 6, there, width, up=True)]
    if back:
        found += [_arrow(x2, y + 6, x1, y + 6), *_label(middle, y + 6, back, width, up=False)]
    return "".join(found)


def _flow(top: float) -> tuple[list[str], float]:
    title = "What goes from whom to whom: everything passes the gateway, and the aggregator"
    parts, found = [_text(EDGE, top, title, size=16, font_weight="bold")], routes()
    client, hub = str(Role.CLIENT), str(Role.AGGREGATOR)
    others = [str(role) for role in Role if str(role) not in (client, hub)]
    row, start = 84, top + 40
    height = row * len(others)
    parts += [_box(EDGE, start, 96, height), _box(400, start, 120, height)]
    parts.append(_text(EDGE + 48, start + height / 2, client, text_anchor="middle"))
    parts.append(_text(460, start + height / 2, hub, text_anchor="middle"))
    up, down = found[client, hub], found[hub, client]
    parts.append(_between(EDGE + 96, 400, start + height / 2, up, down))
    for number, role in enumerate(others):
        y = start + row * (number + 0.5)
        parts.append(_box(780, y - 22, 156, 44))
        parts.append(_text(858, y + 5, role.replace("_", " "), text_anchor="middle"))
        back = [*found.get((role, hub), []), *_public(found.get((role, EVERYONE), []))]
        parts.append(_between(520, 780, y, found.get((hub, role), []), back))
    return parts, start + height


def _public(parts: Sequence[str]) -> list[str]:
    return [f"{part} (to everyone)" for part in parts]


def picture() -> str:
    """Return the SVG."""
    parts, y = list[str](), 40.0
    for draw in (_floors, _matrix, _flow):
        drawn, y = draw(y)
        parts, y = [*parts, *drawn], y + 46
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0 10 5 0 10z" fill="{INK}"/></marker></defs>'
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 20:g}" '
        f'font-family="Helvetica, Arial, sans-serif" fill="{INK}" role="img" '
        'aria-label="Floors, roles and routes of Secure-FGL">'
    )
    ground = f'<rect width="{WIDTH}" height="{y - 20:g}" fill="#ffffff"/>'
    return "\n".join([head, tip, ground, *parts, "</svg>", ""])


# --- the page -------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def tables() -> dict[str, str]:
    """Return the page's tables by name."""
    places = [(f"`{path}`", said) for floor, _ in floors() for path, said in folders(floor)]
    roles = [(f"`{role}`", sentence(ROOT / "protocols" / "roles" / f"{role}.py")) for role in Role]
    meant = [(f"`{disclosure}`", disclosure.meaning) for disclosure in Disclosure]
    return {
        "folders": "\n".join(_table(("folder", "what is there"), places)),
        "roles": "\n".join(_table(("role", "what it does"), roles)),
        "disclosures": "\n".join(_table(("disclosure", "what its receiver learns"), meant)),
    }


def page(text: str) -> str:
    """Return the page with its tables as the code says."""
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if one is stale")
    options, stale = parser.parse_args(arguments), 0
    wanted = {PICTURE: picture(), PAGE: page(PAGE.read_text("utf-8"))}
    for file, text in wanted.items():
        if file.is_file() and file.read_text("utf-8") == text:
            continue
        stale = 1
        print(f"{file.relative_to(ROOT)} is not what the code says", flush=True)
        if not options.check:
            file.write_text(text, "utf-8")
    return stale if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
