"""A leaf node: a site's own server, by which its carrier reaches the broker (the hub).

For a site from which one machine alone may connect outwards. The leaf node logs in at the hub with
the key of the party's carrier, so the hub holds it to what that party may do, whatever the leaf's
own configuration says (`config.rights`, `Cluster.behind`). The carrier connects to the leaf node
with the same key, and knows it by a root certificate that the site made.

One leaf node serves one party in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from secure_fgl.charters.broker import CARRIER, KEY_FILE, url_of
from secure_fgl.charters.charter import Charter
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.transports.broker.config import (
    CONFIG_FILE,
    block,
    common,
    connection,
    issue,
    lines_of,
    new_root,
    rights,
    text_of,
    user,
)

__all__ = ["write_leaf"]

_HUB = "hub.pem"


def write_leaf(
    party: Path, charter: Charter, name: str, folder: Path, *, hubs: Sequence[str], listen: str
) -> Path:
    """Write a leaf node's configuration, and have the party's carrier connect to it.

    Args:
        party: the party's folder.
        charter: of the run.
        name: of the party.
        folder: of the leaf node: configuration, certificates and, in the configuration, the seed
            of the carrier's key.
        hubs: ``HOST:PORT`` at which the broker's servers take leaf nodes.
        listen: ``HOST:PORT`` of the leaf node, as the carrier reaches it.

    Returns:
        The configuration.

    Raises:
        UsageError: the carrier's key is not here, or something cannot be written.
    """
    url = url_of(listen)
    host = url.removeprefix("tls://").rpartition(":")[0].strip("[]")
    at, key = folder.resolve(), party / CARRIER / KEY_FILE
    try:
        seed = key.read_text("ascii").strip()
        root = new_root(folder)
        issue(folder, folder, [host])
        if charter.broker.root:
            Folder(folder, mode=0o644).write(_HUB, charter.broker.root.encode())
        text = _config(charter, name, at, hubs=hubs, listen=listen, seed=seed)
        Folder(folder).write(CONFIG_FILE, text.encode())
        to = replace(connection(charter, name), urls=[url], root=root)
        Folder(party / CARRIER).write(f"{charter.run}.json", to.text().encode())
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}.") from error
    return at / CONFIG_FILE


def _config(
    charter: Charter, name: str, at: Path, *, hubs: Sequence[str], listen: str, seed: str
) -> str:
    own = user(charter.carriers[name], name, rights(charter)[name])
    verified = [f"ca_file: {text_of(at / _HUB)}"] if charter.broker.root else []
    urls = ", ".join(text_of(url_of(hub)) for hub in hubs)
    remote = [
        f"urls: [{urls}]", f"account: {charter.run}", f"nkey: {seed}",
        *block("tls", [*verified, 'min_version: "1.3"', "timeout: 5"]),
    ]  # fmt: skip
    return lines_of([
        *common(listen, at),
        *block("accounts", block(charter.run, ["users: [", own, "]"])),
        *block("leafnodes", ["remotes: [{", *remote, "}]"]),
    ])  # fmt: skip
