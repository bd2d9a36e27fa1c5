"""Where a server of NVFlare keeps jobs and snapshots, as the resources in its kit say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["SHARED", "keep_below", "stores"]

SHARED = "/tmp/nvflare"  # noqa: S108 - where NVFlare puts a server's stores by itself


def keep_below(kit: Path, resources: Mapping[str, Any]) -> None:
    """Move a server's stores, which NVFlare puts under /tmp for all users, below its kit.

    A store that lies elsewhere stays: ``nvflare deploy prepare`` names places that NVFlare sees in
    its container or on its nodes, and this machine may have none of them.
    """
    for where, holder, name in _stored(resources):
        if str(holder.get(name, SHARED)).startswith(SHARED):
            holder[name] = str(kit / "state" / where)


def stores(resources: Mapping[str, Any]) -> list[str]:
    """Return the folders of a server's stores; a site has none."""
    return sorted(str(holder[name]) for _, holder, name in _stored(resources) if name in holder)


def _stored(resources: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield what a store holds, and where its folder is said: a mapping, and the name in it."""
    if "snapshot_persistor" in resources:
        yield "snapshots", resources["snapshot_persistor"]["args"]["storage"]["args"], "root_dir"
        for component in resources["components"]:
            if component["id"] == "job_manager":
                yield "jobs", component["args"], "uri_root"
