"""What belongs to a model that is taken away from a site: plain values, told by the site itself.

    site          the name of its folder, where it has one
    spec          what all sites agreed on about their tables, as bytes of JSON, if own data
    user          the number of the site's user, where it has ratings of one alone
    mean, scale   of its columns, where features are `standard` (`secure_fgl.data.features`)
    data_sha256   of the site's records and their roles

The digest tells nobody the records, but whoever guesses all of them can check the guess. It leaves
the site only where the site exports its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from protocols.wire.roster import weights_digest
from secure_fgl.data.features import Scaling, statistics
from secure_fgl.data.records import ClientRatings, Part

__all__ = ["about", "digest_of"]

_SIMULATED = {"nodes", "graphs", "rows", "common"}  # which a real client does not hold


def about(part: Part, how: Scaling, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what belongs to a model of this part.

    Args:
        part: the site's records as the data has them, not yet scaled.
        how: the run scales features.
        names: what the data's owner calls things.
    """
    found = {**names, "data_sha256": digest_of(part)}
    if isinstance(part, ClientRatings):
        users = np.unique(part.user)
        return found | ({"user": int(users[0])} if len(users) == 1 else {})
    if how == "standard":
        found["mean"], found["scale"] = statistics(part.x)
    return found


def digest_of(part: Part) -> str:
    """Return SHA-256 (hex) over a site's records and their roles, whatever their order of fields.

    The order of records counts: it is the one of their file.
    """
    arrays: dict[str, Any] = {}
    for name, value in vars(part).items():
        if name in _SIMULATED or value is None:
            continue
        if sp.issparse(value):
            rows: Any = value
            arrays |= {f"{name}.{k}": getattr(rows, k) for k in ("data", "indices", "indptr")}
        else:
            arrays[name] = np.asarray(value)
    return weights_digest(arrays)
