"""One party's side of a run over NVFlare, found in the party's folder.

The folder of a party (`secure_fgl.transports.nvflare.party`) holds what all parties agreed on,
``charter.json``, beside ``run/``, this party's side of the run folder. A run folder into which all
sides were gathered holds the charter itself. No secret of the party's is read here.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["side_of"]

_RUN, _CHARTER, _PLAN, _IDENTITY = "run", "charter.json", "plan.json", "identity.json"


def side_of(path: Path) -> tuple[Path, Path | None]:
    """Return the run folder that is meant, and the party's folder if it is one party's side.

    Args:
        path: a run folder, a party's folder, or a party's side in it.
    """
    if (path / _CHARTER).is_file() and not (path / _PLAN).is_file():
        return path / _RUN, path
    place = path.resolve()
    beside = [(place.parent / name).is_file() for name in (_CHARTER, _IDENTITY)]
    if place.name == _RUN and all(beside) and not (path / _CHARTER).is_file():
        return path, place.parent
    return path, None
