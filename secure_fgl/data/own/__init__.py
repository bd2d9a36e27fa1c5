"""The user's own data: one folder a client, one `spec.yaml` that all sites agree on.

Example::

    spec = load_spec("pilot/data")
    sites = load_sites("pilot/data", spec, seed=1)

The layout is in docs/own-data.md. A real site holds `spec.yaml` and its own folder, nothing else,
and calls `own_site` with its own name; it then has the record that a simulation over all folders
gives it.
"""

from secure_fgl.data.own.sites import (
    load_site,
    load_sites,
    own_site,
    read_site,
    site_names,
    site_rng,
)
from secure_fgl.data.own.spec import OwnSpec, load_spec
from secure_fgl.data.own.tables import OwnDataError, Tally

__all__ = [
    "OwnDataError",
    "OwnSpec",
    "Tally",
    "load_site",
    "load_sites",
    "load_spec",
    "own_site",
    "read_site",
    "site_names",
    "site_rng",
]
