"""What a message says, as plans print it; and the check that a class still says just that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from crypto.quantiser import Grid
from protocols.errors import NotInPlan
from protocols.messages import Field, Message
from protocols.plan.plan import FieldPlan, MessagePlan


class Column(Protocol):
    """One field of a message on a grid."""

    @property
    def message(self) -> str:
        """Name of the message."""

    @property
    def field(self) -> Field:
        """The field."""

    @property
    def grid(self) -> Grid | None:
        """Its grid; None for exact counts."""


class Layout(Protocol):
    """Where fields stand on a grid, whose bounds and steps a plan prints."""

    @property
    def columns(self) -> Sequence[Column]:
        """The fields, in order."""


def message_plan(
    kind: type[Message], dims: Mapping[str, int], layout: Layout | None = None
) -> MessagePlan:
    """Return a message type with the sizes that `dims` gives it.

    Args:
        kind: the message type.
        dims: sizes of named dimensions.
        layout: for messages on a grid, the layout whose bounds and steps are printed.
    """
    grids = {}
    if layout is not None:
        grids = {c.field.name: c.grid for c in layout.columns if c.message == kind.__name__}
    fields = []
    for field in kind.fields:
        grid = grids.get(field.name)
        fields.append(
            FieldPlan(
                name=field.name,
                dtype=field.wire,
                shape=field.sizes(dims),
                dims=", ".join(str(part) for part in field.shape),
                unit=field.unit,
                meaning=field.meaning,
                carried=str(field.carried or ""),
                bound=repr(grid.bound) if grid else "",
                step=repr(grid.step) if grid else "",
                told=field.told,
                moves=field.moves,
            )
        )
    return MessagePlan(name=kind.__name__, disclosure=kind.disclosure, fields=tuple(fields))


def check_schema(
    kind: type[Message],
    planned: MessagePlan,
    dims: Mapping[str, int],
    layout: Layout | None = None,
) -> None:
    """Raise NotInPlan unless `kind` has exactly the planned fields, bounds and steps included."""
    if message_plan(kind, dims, layout) != planned:
        raise NotInPlan(
            f"The message {kind.__name__} is not the one in the plan: its fields differ.",
            why="the algorithm's file changed after the plan was made",
            fix="make a new plan, and have it approved",
        )
