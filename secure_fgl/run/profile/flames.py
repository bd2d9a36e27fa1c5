"""A flame graph as SVG: no script, no style or picture from elsewhere.

Time runs to the right, and what is called stands above what calls it. Of the packages that draw
flame graphs (flamegraph.pl's ports, speedscope, pyinstrument) each writes a page with a script in
it, which an evidence folder should not hold, and samples stacks rather than taking ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

__all__ = ["flame_graph"]

_WIDTH, _ROW, _TOP, _CHAR = 1200, 22, 46, 7.2  # pixels; a character's width at 12 pixels
_LEAST = 0.4  # pixels; what is narrower is not drawn, though counted below it
_COLOURS = ("#f4b183", "#ffd966", "#a9d18e", "#9dc3e6", "#c5b0d5", "#e6a5a5", "#b7d7d2", "#d9d9d9")


class _Node:
    def __init__(self) -> None:
        self.whole = 0
        self.inner: dict[str, _Node] = {}


def flame_graph(paths: Mapping[tuple[str, ...], int], title: str) -> str:
    """Return a picture of where time went.

    Args:
        paths: nanoseconds by path, each without what is spent further in.
        title: of the picture.
    """
    root = _Node()
    for path, spent in sorted(paths.items()):
        root.whole += spent
        node = root
        for name in path:
            node = node.inner.setdefault(name, _Node())
            node.whole += spent
    deep = max((len(path) for path in paths), default=0) + 1
    tall = _TOP + deep * _ROW + 8
    boxes: list[str] = []
    kinds = sorted({name for path in paths for name in path})
    _draw(root, "everything", 0.0, root.whole or 1, (tall - 8 - _ROW, kinds), boxes)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{tall}" '
        f'viewBox="0 0 {_WIDTH} {tall}" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{tall}" fill="#fff"/>'
    name = f'<title>{escape(title)}</title><text x="8" y="24" font-size="16">{escape(title)}</text>'
    return "\n".join([head, ground, name, *boxes, "</svg>", ""])


def _draw(
    node: _Node,
    name: str,
    left: float,
    whole: int,
    place: tuple[float, list[str]],
    boxes: list[str],
) -> None:
    (top, kinds), width = place, _WIDTH * node.whole / whole
    if width < _LEAST:
        return
    colour = _COLOURS[kinds.index(name) % len(_COLOURS)] if name in kinds else "#eeeeee"
    says = f"{name}: {node.whole / 1e9:.3f} s, {100 * node.whole / whole:.1f} %"
    room = int((width - 6) / _CHAR)
    shown = name if len(name) <= room else name[: room - 1] + "…" if room > 2 else ""
    boxes.append(
        f"<g aria-label={quoteattr(says)}><title>{escape(says)}</title>"
        f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_ROW - 1}" fill="{colour}" '
        f'stroke="#fff"/><text x="{left + 4:.2f}" y="{top + 15}">{escape(shown)}</text></g>'
    )
    for inner, found in node.inner.items():
        _draw(found, inner, left, whole, (top - _ROW, kinds), boxes)
        left += _WIDTH * found.whole / whole
