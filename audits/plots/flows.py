"""Who sends what to whom: one lane per role, one arrow per direction, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from audits.plots.svg import at, cut, figure, line, text
from audits.report import words
from audits.report.sections import Flow
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

_FIRST = (str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY))
_HEAD, _ROW = 48, 74  # pixels: the lanes' names, one flow
_PROTECTION = 58  # characters
_HEADS = Markup(
    '<defs><marker id="flows-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" '
    'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path class="tip" '
    'd="M0 0 10 5 0 10z"/></marker><marker id="flows-tip-unsafe" viewBox="0 0 10 10" refX="9" '
    'refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
    '<path class="tip unsafe" d="M0 0 10 5 0 10z"/></marker></defs>'
)


def flows(rows: Sequence[Flow]) -> Markup:
    """Return the data-flow diagram.

    Args:
        rows: from section 1; roles that are not on the roster get a lane too.
    """
    roles = {role for row in rows for role in (row.sender, row.recipient)} - {EVERYONE}
    lanes = [role for role in _FIRST if role in roles] + sorted(roles - set(_FIRST))
    place = {role: 100 * (number + 0.5) / len(lanes) for number, role in enumerate(lanes)}
    height = _HEAD + _ROW * len(rows) + 8
    parts = [_HEADS]
    for role in lanes:
        parts.append(line(place[role], 34, place[role], height, "lane"))
        name = cut(_plural(role), 16)
        box = Markup('<rect class="role" x="-56" y="-16" width="112" height="30" rx="6"/>')
        parts.append(at(place[role], 18, box + text(0, 4, name, "name", "middle")))
    for number, row in enumerate(rows):
        parts.append(_flow(row, place, _HEAD + number * _ROW))
    description = "; ".join(
        f"{_plural(row.sender)} to {_plural(row.recipient)}: {_amount(row)}" for row in rows
    )
    title = "Who sends what to whom"
    return figure("flows", "flows", title, description or "Nothing left.", height, parts)


def _plural(role: str) -> str:
    return "clients" if role == Role.CLIENT else words.role(role)


def _amount(row: Flow) -> str:
    return f"{words.plural(row.count, 'envelope')}, {words.size(row.bytes)}"


def _whole(kinds: Sequence[str]) -> str:
    """Return as many kinds of protection as fit, none of them cut, and how many more there are."""
    for count in range(len(kinds), 1, -1):
        rest = f"; {len(kinds) - count} more" if count < len(kinds) else ""
        if len(said := "; ".join(kinds[:count]) + rest) <= _PROTECTION:
            return said
    return "".join(kinds[:1]) + (f"; {len(kinds) - 1} more" if len(kinds) > 1 else "")


def _flow(row: Flow, place: dict[str, float], top: int) -> Markup:
    route = f"{_plural(row.sender)} → {_plural(row.recipient)}: {_amount(row)}"
    protection = f"UNSAFE: {_whole(row.protection)}" if row.unsafe else _whole(row.protection)
    kind = "flow unsafe" if row.unsafe else "flow"
    start = place.get(row.sender, 50.0)
    ends = [place[row.recipient]] if row.recipient in place else []
    if row.recipient == EVERYONE:
        ends = [x for role, x in place.items() if role != row.sender]
    arrows = [
        line(start, top + 54, end if end != start else end + 6, top + 54, kind) for end in ends
    ]
    tip = "flows-tip-unsafe" if row.unsafe else "flows-tip"
    tipped = [
        Markup(str(arrow).replace("/>", f' marker-end="url(#{tip})"/>'))  # noqa: S704 - our own
        for arrow in arrows
    ]
    said = cut(protection, _PROTECTION)
    return Markup("").join(
        [
            text(0, top + 18, route, "value"),
            text(0, top + 37, said, "unsafe" if row.unsafe else "soft"),
            *tipped,
        ]
    )
