"""A start-up kit of NVFlare as files: whose it is, whom it dials, and what is in force in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from secure_fgl.errors import UsageError
from secure_fgl.store.files import content
from secure_fgl.transports.nvflare.engine.listener import CLEAR_READS, is_mutual
from secure_fgl.transports.nvflare.engine.memory import COMMUNICATION_FILE
from secure_fgl.transports.nvflare.engine.stores import SHARED, stores
from secure_fgl.transports.nvflare.kits import CLASSES, NO_STREAMS, RIGHTS

__all__ = ["KitFiles"]

_LIMIT = 1 << 20  # bytes; of each of the kit's files that are read
_MORE = "*_resources.json"  # NVFlare's job_resources.json, and names with __, __j_ and __p_
_RELAY = "relay__resources.json"
"""Where NVFlare's provisioning names the relay that a site dials in the server's place."""
_DENIED = ("none", "no")  # as NVFlare spells it


@dataclass(frozen=True)
class KitFiles:
    """One participant's kit.

    Attributes:
        folder: of the kit.
        server: whether it is the server's; else a client's.
    """

    folder: Path
    server: bool

    @classmethod
    def open(cls, folder: str | Path) -> KitFiles:
        """Look whose kit a folder is; raises UsageError for what is none of a server or site."""
        place = Path(folder).expanduser().resolve()
        kinds = {k: place / "startup" / f"fed_{k}.json" for k in ("server", "client")}
        try:
            found = [kind for kind, file in kinds.items() if file.is_file()]
        except OSError as error:
            raise UsageError(
                f"{place} cannot be reached ({error.strerror}).",
                why="it, or a folder above it, is closed to this user",
                fix="do this as root, or as the kit's user",
            ) from error
        if len(found) != 1:
            raise UsageError(
                f"{place} is no start-up kit of a server or a site of NVFlare.",
                why="a kit holds startup/fed_server.json or startup/fed_client.json",
                fix="give the folder that NVFlare's provisioning made for this site",
            )
        return cls(place, found == ["server"])

    @cached_property
    def _settings(self) -> dict[str, Any]:
        document = self._document(self._own_file)
        try:
            (named,) = document["servers"]
            given = named if self.server else document["client"]
            host, _, port = str(named["service"]["target"]).rpartition(":")
            files = {n: str(given[n]) for n in ("ssl_cert", "ssl_private_key", "ssl_root_cert")}
            return {"host": host, "port": int(port), "tls": given["connection_security"], **files}
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.folder}/{self._own_file} is not as NVFlare 2.9 writes it.",
                fix="make the kit anew with this version of NVFlare",
            ) from error

    @cached_property
    def _relay(self) -> dict[str, Any] | None:
        """What is said of NVFlare's relay that this site dials; None: it dials the server."""
        place = self.folder / "local" / _RELAY
        if self.server or not place.is_file():
            return None
        try:
            named = self._document(f"local/{_RELAY}")["relay_config"]
            host, _, port = str(named["address"]).rpartition(":")
            found = {"host": host, "port": int(port), "tls": named.get("connection_security")}
            found["name"] = named["identity"]
            if not host or not isinstance(found["name"], str):
                raise ValueError
            return found
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{place} names no relay as NVFlare 2.9 writes it.",
                fix="make the kit anew with this version of NVFlare",
            ) from error

    @property
    def relay(self) -> str:
        """Name of the relay of NVFlare's behind which this site is; empty if it dials the server.

        Raises:
            UsageError: the kit's file of it is not as NVFlare writes it.
        """
        return "" if self._relay is None else str(self._relay["name"])

    @property
    def dialled(self) -> tuple[str, int]:
        """Name and port of whom this site dials: the server, or the relay in between."""
        found = self._relay or self._settings
        return found["host"], found["port"]

    @property
    def mutual(self) -> bool:
        """Tell whether this site, and whom it dials, show each other certificates."""
        found = self._relay or self._settings
        return bool(found["tls"] == "mtls" == self._settings["tls"])

    def startup(self, which: str) -> Path:
        """Return the file of the certificate, its key or the root, by NVFlare's name for it."""
        return self.folder / "startup" / str(self._settings[which])

    def certificate(self, which: str = "ssl_cert") -> x509.Certificate:
        """Return the kit's own certificate, or its root; raises UsageError."""
        path = self.startup(which)
        try:
            return x509.load_pem_x509_certificate(self._bytes(path))
        except ValueError as error:
            raise UsageError(f"{path} is no certificate.", fix="make the kit anew") from error

    @property
    def site(self) -> str:
        """The site's name, as its certificate says; raises UsageError."""
        names = self.certificate().subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(names) != 1:
            raise UsageError(
                f"The certificate in {self.folder} names nobody.", fix="make the kit anew"
            )
        return str(names[0].value)

    def lacking(self) -> list[str]:
        """Say what `kits.harden` puts into force and is not in force here; empty if all is.

        Raises:
            UsageError: a file of the kit cannot be read.
        """
        return [*self._open_doors(), *self._open_rights(), *self._open_listener()]

    def _open_listener(self) -> Iterator[str]:
        if not is_mutual(self.sending()):
            yield f"{CLEAR_READS} (local/{COMMUNICATION_FILE})"

    def _open_doors(self) -> Iterator[str]:
        if not (self.folder / "local" / "resources.json").is_file():
            yield "there is no local/resources.json, so NVFlare's own defaults hold"
            return
        found = self._document("local/resources.json")
        if found.get("class_list_enforcement_mode") != "enforce":
            yield "the list of classes that a job may name is not enforced"
        yield from _open_classes(found.get("class_allow_list", []))
        if found.get("allow_log_streaming") is not False:
            yield "logs of the site may be streamed away"
        named = {str(c.get("id")) for c in found.get("components", ()) if isinstance(c, dict)}
        if streams := sorted(named & {*NO_STREAMS}):
            yield f"the component {streams[0]} is still there"
        if f'"{SHARED}' in json.dumps(found):
            yield f"a store of the server lies under {SHARED}, which all users share"
        custom = self.folder / "local" / "custom"
        if custom.is_dir() and any(custom.iterdir()):
            yield "local/custom holds code, which NVFlare puts before ours"
        for place in ("startup", "local"):
            for file in sorted((self.folder / place).glob(_MORE)):
                if (place, file.name) != ("local", _RELAY) or not self._is_relay_alone():
                    yield f"NVFlare reads {place}/{file.name} besides local/resources.json"
        for name in ("local/resources.json", self._own_file):
            if "relay_config" in self._document(name):
                yield f"{name} names a relay, which belongs into local/{_RELAY} alone"

    def _is_relay_alone(self) -> bool:
        """Tell whether the file that names a relay does nothing else: NVFlare reads all of it."""
        found = self._document(f"local/{_RELAY}")
        return not self.server and set(found) == {"format_version", "relay_config"}

    @property
    def _own_file(self) -> str:
        return f"startup/fed_{'server' if self.server else 'client'}.json"

    def _open_rights(self) -> Iterator[str]:
        if not (self.folder / "local" / "authorization.json").is_file():
            yield "there is no local/authorization.json, so NVFlare's own rights hold"
            return
        permissions = self._document("local/authorization.json").get("permissions")
        if not isinstance(permissions, dict):
            yield "local/authorization.json lists no permissions"
            return
        for role, rights in sorted(permissions.items()):
            if not isinstance(rights, dict):
                if rights not in _DENIED:
                    yield f"the role {role} may do everything"
                continue
            for right, who in sorted(rights.items()):
                if RIGHTS.get(right, "none") == "none" and who not in _DENIED:
                    yield f"the role {role} has the right {right}"

    def sending(self) -> dict[str, Any]:
        """Return how this kit says that NVFlare sends; of each that is missing, its default holds.

        Raises:
            UsageError: the file cannot be read.
        """
        name = f"local/{COMMUNICATION_FILE}"
        return self._document(name) if (self.folder / name).exists() else {}

    def rights(self) -> dict[str, list[str]]:
        """Return what each role may do here; raises UsageError."""
        permissions = self._document("local/authorization.json").get("permissions", {})
        return {
            role: [right for right, who in rights.items() if who not in _DENIED]
            for role, rights in permissions.items()
        }

    def stores(self) -> list[str]:
        """Return where a server keeps jobs and snapshots, as NVFlare sees it; raises UsageError."""
        return stores(self._document("local/resources.json"))

    def classes(self) -> list[str]:
        """Return the classes that a job may name; raises UsageError."""
        return [str(c) for c in self._document("local/resources.json")["class_allow_list"]]

    def _document(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self._bytes(self.folder / name))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UsageError(
                f"{self.folder / name} is not as NVFlare writes it.", fix="make the kit anew"
            )
        return found

    def _bytes(self, path: Path) -> bytes:
        try:
            data = content(path, _LIMIT)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error.strerror}).",
                fix=f"see that the kit's own user can: chown -R USER {self.folder}",
            ) from error
        if data is None:
            raise UsageError(f"{path} is too large to be a file of a kit.")
        return data


def _open_classes(listed: Any) -> Iterator[str]:
    if not isinstance(listed, list):
        yield "class_allow_list is no list"
    elif more := sorted({*map(str, listed)} - {*CLASSES}):
        yield f"a job may name other classes than ours, {more[0]} for one"
