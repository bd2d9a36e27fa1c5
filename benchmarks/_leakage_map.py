"""The heat map of benchmarks/leakage.py: runs by attacks, the worst verdict in each field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

__all__ = ["heat_map"]

_LEFT, _TOP, _WIDE, _TALL = 216, 64, 62, 22
_COLOURS = {
    "FAIL": "#b3261e",
    "ERROR": "#7a3db8",
    "INVALID": "#7a3db8",
    "INCONCLUSIVE": "#e0a526",
    "PASS": "#2e7d4f",
    "NOT_TESTED": "#c9c9c9",
    "NOT_APPLICABLE": "#efefef",
    "refused": "#ffffff",
}
_SHORT = {
    "INCONCLUSIVE": "?",
    "NOT_TESTED": "-",
    "NOT_APPLICABLE": "",
    "INVALID": "INV.",
    "refused": "refused",
}
_DARK = ("FAIL", "ERROR", "INVALID", "PASS")


def heat_map(found: Mapping[str, Mapping[str, str]], attacks: Sequence[str]) -> str:
    """Return the map as SVG; the words in it say what the colours say.

    Args:
        found: label of a run -> attack -> worst verdict, or ``refused``.
        attacks: ids, in order.
    """
    wide = _LEFT + _WIDE * len(attacks) + 8
    tall = _TOP + _TALL * len(found) + 8
    parts = [
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{0}" height="{1}" '
            'viewBox="0 0 {0} {1}"><title>Worst verdict of each attack on each run</title>'
            "<desc>Runs: {2}; attacks: {3}. All figures stand in the rows.</desc>"
            '<rect width="{0}" height="{1}" fill="#ffffff"/>'
            "<style>text{{font:12px sans-serif;fill:#222}}.dark{{fill:#fff}}</style>"
        ).format(wide, tall, len(found), len(attacks)),
        _text(8, 16, "FAIL: leaks. PASS: no more than without the message. ?: undecided."),
        _text(8, 32, "INV.: a control objects. -: not tested. Empty: nothing of that kind leaves."),
    ]
    for column, attack in enumerate(attacks):
        parts.append(_text(_LEFT + _WIDE * column + _WIDE / 2, _TOP - 8, attack, "middle"))
    for row, (label, verdicts) in enumerate(found.items()):
        y = _TOP + _TALL * row
        parts.append(_text(8, y + 15, label))
        for column, attack in enumerate(attacks):
            verdict = verdicts.get(attack, verdicts.get("", "NOT_TESTED"))
            parts.append(_field(_LEFT + _WIDE * column, y, verdict))
    return str(Markup("\n").join([*parts, Markup("</svg>\n")]))


def _field(x: float, y: float, verdict: str) -> Markup:
    box = Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" fill="{}" stroke="#ffffff"/>'
    ).format(x, y, _WIDE, _TALL, _COLOURS[verdict])  # fmt: skip
    words = _SHORT.get(verdict, verdict)
    return box + _text(x + _WIDE / 2, y + 15, words, "middle", dark=verdict in _DARK)


def _text(x: float, y: float, words: str, anchor: str = "start", *, dark: bool = False) -> Markup:
    kind = Markup(' class="dark"') if dark else Markup("")
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        x, y, anchor, kind, words
    )
