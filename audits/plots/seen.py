"""Who saw what: one row per kind of payload that left, one column per role, a shape in each cell.

What a role learns stands in the plan in words. Only a closed list of words counts
as "could not read it": all others count as reading, so that no new text is shown as harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from markupsafe import Markup

from audits.plots.svg import at, cut, figure, line, text
from audits.report import words
from audits.report.models import Egress
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

_FIRST = (str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY))
_NOTHING = "nothing"
_OPAQUE = frozenset(
    {
        "its own points times the first tag server's share: uniform",
        "its own row, still blinded",
        "nothing, until enough holders say that this client vanished",
        "nothing: as coordinator it hands on boxes that it cannot open",
        "nothing: it chooses the weights and cannot open a row",
        "size only",
        "size only: boxes that it cannot open, and who takes part when",
        "uniform noise, and who took part when",
        "uniform numbers, one of each member of its cell",
        "uniform numbers: shares under a blind that only clients know",
    }
)
"""Words, whole, that say nothing of what a message holds, though its receiver has its bytes."""
_LABEL = 44  # characters
_BESIDE = 3  # names of roles that stand side by side on a narrow screen
_LEGEND, _HEAD, _ROW = 22, 46, 46  # pixels


class Sight(Enum):
    """What a role could do with a kind of payload; the value is in words."""

    NONE = "never had it"
    SEALED = "had it, could not read it"
    READ = "read what the plan says"
    CLEAR = "read it in clear"


_SHAPES = {
    Sight.SEALED: '<circle class="ring" r="7"/>',
    Sight.READ: '<circle class="point" r="7.5"/>',
    Sight.CLEAR: '<path class="tip unsafe" d="M-4-9h8l5 5v8l-5 5h-8l-5-5v-8z"/>',
}


@dataclass(frozen=True)
class Matrix:
    """Kinds of payload and roles.

    Attributes:
        roles: columns.
        rows: payload id and, in the order of the columns, what each role could do.
        picture: the same as inline SVG.
    """

    roles: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Sight, ...]], ...]
    picture: Markup


def matrix(egress: Sequence[Egress], roles: Iterable[str]) -> Matrix:
    """Return who could read which kind of payload.

    Args:
        egress: what left, rolled up by role; a kind that goes in several items counts as read if
            one of them was.
        roles: of the parties on the roster.
    """
    there = set(roles)
    shown = [r for r in _FIRST if r in there] + sorted(there - set(_FIRST))
    found: dict[str, dict[str, Sight]] = {}
    for row in egress:
        for payload in row.payloads:
            if payload in words.FORMS:
                continue
            cells = found.setdefault(payload, dict.fromkeys(shown, Sight.NONE))
            for role in shown:
                cells[role] = max(cells[role], _sight(row, role), key=list(Sight).index)
    rows = tuple((id, tuple(cells.values())) for id, cells in sorted(found.items()))
    return Matrix(tuple(shown), rows, _picture(shown, rows))


def _sight(row: Egress, role: str) -> Sight:
    """Return what a role could do with one item."""
    told = [row.learns[name] for name in _names(role) if name in row.learns]
    if row.recipient_role in (role, EVERYONE):
        told = told or [row.meaning]
    told = [text for text in told if text != _NOTHING]
    if not told:
        return Sight.NONE
    if _OPAQUE.issuperset(told):
        return Sight.SEALED
    return Sight.CLEAR if row.unsafe and row.recipient_role == role else Sight.READ


def _names(role: str) -> tuple[str, ...]:
    """Return under which names the plan says what a role learns."""
    clients = ("other clients", "addressee") if role == Role.CLIENT else ()
    return (role, "everyone", *clients)


def _picture(roles: Sequence[str], rows: Sequence[tuple[str, tuple[Sight, ...]]]) -> Markup:
    parts = []
    for number, (sight, shape) in enumerate(_SHAPES.items()):
        y = _LEGEND * number
        said = Markup('<text x="26">{}</text>').format(sight.value)
        parts.append(at(0, y + 15, said))
        moved = f'<g transform="translate(9)">{shape}</g>'
        parts.append(at(0, y + 10, Markup(moved)))  # noqa: S704 - a constant of this file
    top = _LEGEND * len(_SHAPES) + 8
    places = [100 * (number + 0.5) / len(roles) for number in range(len(roles))]
    height = top + _HEAD + _ROW * len(rows) + 6
    for number, (role, x) in enumerate(zip(roles, places, strict=True)):
        # Names of neighbours stand on two lines in turn, so that none meets another.
        parts.append(line(x, top + _HEAD - 4, x, height, "lane"))
        parts.append(
            text(
                x,
                top + 14 + 18 * (number % 2 if len(roles) > _BESIDE else 1),
                words.role(role),
                "name",
                "middle",
            )
        )
    for number, (id, cells) in enumerate(rows):
        y = top + _HEAD + _ROW * number
        parts.append(text(0, y + 14, cut(f"{id} {words.NAMES[id]}", _LABEL), "value"))
        for x, sight in zip(places, cells, strict=True):
            if sight in _SHAPES:
                parts.append(at(x, y + 31, Markup(_SHAPES[sight])))  # noqa: S704 - a constant
    readers = "; ".join(
        ", ".join([id, *(f"{words.role(r)} {s.value}" for r, s in zip(roles, cells, strict=True))])
        for id, cells in rows
    )
    description = f"{readers or 'Nothing left'}. The same stands in the table that follows."
    return figure("seen", "seen", "Who could read what", description, height, parts)
