"""Several TU sets at once, one owner each, as GCFL federates them (Xie et al., NeurIPS 2021).

Members lie one after another and `owner` is the member's place, so that the partitions
`graphs_multi_dataset` and `by_owner` give one set to each client. Features are laid side by side:
a member fills its own columns and leaves the others empty, so the first layer keeps a block of
weights for each member, as the paper's clients keep a first layer each. Classes are numbered from 0
in every member, and the largest member sets their number.

Left out, because the data folder does not hold them: DHFR (of all groups but none alone) and COLLAB
(of `tu_mix`). Figures from these groups are not the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from secure_fgl.data.records import GraphSet
from secure_fgl.data.sources import tu_npz
from secure_fgl.data.sources._shared.files import Shape, check_known

__all__ = ["NAMES", "describe", "load"]

_MOLECULES = ("mutag", "bzr", "cox2", "ptc_mr", "aids", "nci1")
_PROTEINS = ("enzymes", "dd", "proteins")

NAMES: Mapping[str, tuple[str, ...]] = {
    "tu_biochem": (*_MOLECULES, *_PROTEINS),
    "tu_mix": (*_MOLECULES, *_PROTEINS, "imdb_binary", "imdb_multi"),
    "tu_molecules": _MOLECULES,
    "tu_small": ("mutag", "bzr", "cox2", "ptc_mr", *_PROTEINS),
}
"""Members of each group, in the owners' order."""


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes: those of the members together.

    Raises:
        ValueError: an option was given; the groups have none.
    """
    check_known(name, options, ())
    members = [tu_npz.NAMES[member] for member in NAMES[name]]
    return Shape(
        "graph",
        features=sum(member.features for member in members),
        classes=max(member.classes for member in members),
        records=sum(member.records for member in members),
        synthetic=False,
    )


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> GraphSet:
    """Read the members and join them.

    Raises:
        FileNotFoundError: no folder was named, or a member's file is not in it.
        ValueError: an option was given, or a file is not what its table says.
    """
    import scipy.sparse as sp

    shape = describe(name, options)
    members = [tu_npz.load(member, root, {}) for member in NAMES[name]]
    starts = [0, *accumulate(int(member.sizes.sum()) for member in members)][:-1]
    return GraphSet(
        name,
        np.concatenate([member.sizes for member in members]),
        np.concatenate(
            [member.edges + start for member, start in zip(members, starts, strict=True)], axis=1
        ),
        sp.csr_array(sp.block_diag([member.x for member in members])),
        np.concatenate([member.y for member in members]),
        shape.classes,
        multilabel=False,
        synthetic=False,
        owner=np.repeat(np.arange(len(members)), [member.records for member in members]),
    )
