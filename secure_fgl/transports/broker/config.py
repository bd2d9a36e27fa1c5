"""A server's configuration, from the charters of the runs that it carries.

Each run is an account of its own, whose subjects no other account sees; runs that share a party's
key are one. Each party is one user of it, known by the public key that its facts announced. What it
may publish and subscribe follows from the plan's routes: a party hears what is sent to it, and may
publish one reply to each message that it received; the aggregator may publish to every party, and
hears its own replies. Nobody else is a user, nobody administers, nothing is stored, and no other
port is open.

A server grants single replies to what it hands over itself, on any server of a cluster, and not to
what crosses a leaf node, a site's own server (tried with nats-server 2.15.1). A party whose carrier
is behind one, and is named in `Cluster.behind`, may instead publish to the aggregator's reply
subjects that have its own name in them, and nowhere else. The leaf node logs in as that party, so
the hub holds it to that party's rights whatever its own configuration says.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocols.plan.plan import Plan
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import CARRIER, KEY_FILE, url_of
from secure_fgl.charters.charter import Charter
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content
from secure_fgl.transports.broker.carrier import Connection
from secure_fgl.transports.broker.messages import HEAD_BYTES, MOST, PART

CONFIG_FILE = "nats.conf"
_PARTY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_ROOT, _ROOT_KEY = "root.pem", "root.key"
_CERTIFICATE, _KEY = "server.pem", "server.key"
MAX_PAYLOAD = PART + HEAD_BYTES
_MAX_PENDING = 64 * MAX_PAYLOAD  # bytes that wait for one connection before the server drops it:
# all sites may reply to the aggregator at once
_REPLY_SECONDS = 120  # in which a party may reply to a message; a reply is held for 60 at most
_SUBSCRIPTIONS = 4096  # of one connection
_SLACK = 1 << 20
_ROOT_DAYS, _SERVER_DAYS = 3650, 397
_PORT = 4222


@dataclass(frozen=True)
class Rights:
    """What one party may do at the server.

    Attributes:
        publish: subjects; of a party other than the aggregator there are none, see `replies`, or
            the reply subjects with its own name where it is behind a leaf node.
        subscribe: subjects.
        replies: whether it may publish one reply to each message that it receives.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    replies: bool

    def and_also(self, other: Rights) -> Rights:
        """Return the rights of one key in two runs."""
        return Rights(
            self.publish + other.publish,
            self.subscribe + other.subscribe,
            self.replies or other.replies,
        )


def _subject(run: str, party: str) -> str:
    return f"fgl.{run}.to.{party}"


def _inbox(run: str, party: str) -> str:
    return f"fgl.{run}.replies.{party}"


def rights(charter: Charter, behind: Collection[str] = ()) -> dict[str, Rights]:
    """Return what each party of a run may publish and subscribe, by name.

    Every route of a plan has the aggregator at one end, or passes through it: sealed envelopes of
    one party for another are carried by it.

    Args:
        charter: of the run.
        behind: parties that connect by a leaf node.
    """
    run, others = charter.run, [n for n in sorted(charter.carriers) if n != AGGREGATOR_NAME]
    if strange := [name for name in others if not _PARTY.fullmatch(name)]:  # a subject of many?
        raise UsageError(f"No party can be called {strange[0][:80]!r}.", fix="see charter show")
    asks = tuple(_subject(run, name) for name in others)
    by_party = {name: Rights((), (_subject(run, name),), replies=True) for name in others}
    inbox = _inbox(run, AGGREGATOR_NAME)
    for name in {*behind} & {*others}:  # `requests` puts the party's name there
        by_party[name] = Rights((f"{inbox}.*.{name}.*",), (_subject(run, name),), replies=False)
    by_party[AGGREGATOR_NAME] = Rights(asks, (f"{inbox}.>",), replies=False)
    return by_party


def message_limit(plan: Plan, role: Role) -> int:
    """Return how many bytes one message from or to a party in a role has at most, by the plan.

    All that the plan lists between it and the aggregator in one round, and all that it hands to
    each of the others, in one message: more is never ours.
    """
    count, total = len(plan.clients), 0
    for item in plan.items:
        if role in (item.sender, item.recipient) or item.recipient == "roster":
            both = item.sender == item.recipient == Role.CLIENT
            total += item.bytes * (count if both or role is not Role.CLIENT else 1)
    return min(MOST, 2 * total + _SLACK)


def connection(charter: Charter, party: str) -> Connection:
    """Return how a party's carrier reaches the broker."""
    run, broker = charter.run, charter.broker
    roles = {name: charter.roster.party(name).role for name in charter.carriers}
    limits = {name: message_limit(charter.plan, role) for name, role in roles.items()}
    aggregator = party == AGGREGATOR_NAME
    others = {name: _subject(run, name) for name in roles if name != AGGREGATOR_NAME}
    return Connection(
        run, party, list(broker.urls), broker.root,
        listens="" if aggregator else others[party],
        inbox=_inbox(run, party),
        asks=others if aggregator else {},
        limits=limits if aggregator else {party: limits[party]},
    )  # fmt: skip


def keep_connection(party: Path, charter: Charter, name: str) -> Path:
    """Write what a party's carrier needs to know of a run; return the file. Raises UsageError."""
    try:
        Folder(party / CARRIER).write(
            f"{charter.run}.json", connection(charter, name).text().encode()
        )
    except OSError as error:
        raise UsageError(f"{party / CARRIER} cannot be written ({error.strerror}).") from error
    return party / CARRIER / f"{charter.run}.json"


@dataclass(frozen=True)
class Cluster:
    """Several servers that carry the same runs.

    Attributes:
        name: of this server among them; its files lie in a folder of this name.
        listen: ``HOST:PORT`` at which the others reach it.
        routes: ``HOST:PORT`` of the others.
        leaves: ``HOST:PORT`` at which sites' own servers (leaf nodes) connect; empty: nowhere.
        behind: names of the parties that connect by one.
    """

    name: str = ""
    listen: str = ""
    routes: Sequence[str] = field(default_factory=tuple)
    leaves: str = ""
    behind: Sequence[str] = field(default_factory=tuple)


def server_config(
    charters: Sequence[Charter], folder: Path, *, listen: str, cluster: Cluster | None = None
) -> str:
    """Return the text of a server's configuration.

    Args:
        charters: of the runs that it is to carry; signatures are not looked at.
        folder: where its certificate and key lie.
        listen: ``HOST:PORT``.
        cluster: where it is one of several servers, or takes leaf nodes.

    Raises:
        UsageError: two charters are of one run, or no charter names a party of `behind`.
    """
    runs = [charter.run for charter in charters]
    if len({*runs}) < len(runs):
        raise UsageError("Two of these charters are of one run.", fix="name each once")
    behind = {*cluster.behind} if cluster is not None else set[str]()
    known = {n for charter in charters for n in charter.carriers if n != AGGREGATOR_NAME}
    if strange := sorted(behind - known):
        raise UsageError(f"No charter names {strange[0][:80]} as a site.", fix="see charter show")
    return lines_of([
        *common(listen, folder),
        *block("accounts", [*_accounts(charters, behind)]),
        *(_clustered(cluster, folder) if cluster is not None else []),
    ])  # fmt: skip


def common(listen: str, folder: Path) -> list[str]:
    """Return the lines that every server of ours has: TLS and limits.

    Args:
        listen: ``HOST:PORT``.
        folder: where its certificate and key lie.
    """
    tls = block("tls", [
        f"cert_file: {text_of(folder / _CERTIFICATE)}", f"key_file: {text_of(folder / _KEY)}",
        'min_version: "1.3"', "timeout: 5", "handshake_first: true",
    ])  # fmt: skip
    return [
        "# Written by secure-fgl broker; a charter that changes is another file.",
        f"listen: {text_of(listen)}",
        f"max_payload: {MAX_PAYLOAD}",
        f"max_pending: {_MAX_PENDING}",
        "max_control_line: 1024",
        f"max_subscriptions: {_SUBSCRIPTIONS}",  # the aggregator has one a party
        'ping_interval: "20s"',
        "ping_max: 2",
        'write_deadline: "60s"',  # for a whole part over a slow line
        *tls,
    ]


def _accounts(charters: Sequence[Charter], behind: Collection[str]) -> Iterator[str]:
    """Yield an account for each run, or for several runs that share a party's key.

    A server knows a key once, so a party of two runs is one user, of one account, with the rights
    of both; their subjects keep the runs apart.
    """
    groups: list[list[Charter]] = []
    for charter in charters:
        keys = {*charter.carriers.values()}
        near = [g for g in groups if any(keys & {*c.carriers.values()} for c in g)]
        groups = [g for g in groups if g not in near]
        groups.append([*(c for g in near for c in g), charter])
    for group in groups:
        yield from _account(group, behind)


def _account(charters: Sequence[Charter], behind: Collection[str]) -> list[str]:
    names, by_key = dict[str, str](), dict[str, Rights]()
    for charter in charters:
        for name, right in sorted(rights(charter, behind).items()):
            key = charter.carriers[name]
            names[key] = name
            by_key[key] = by_key[key].and_also(right) if key in by_key else right
    users = [user(key, names[key], right) for key, right in by_key.items()]
    return [*block(charters[0].run, ["users: [", *users, "]"])]


def user(key: str, name: str, right: Rights) -> str:
    """Return the line of one user: its public NKey, what it may do, and its party's name."""
    publish = json.dumps(list(right.publish)) if right.publish else '{deny: [">"]}'
    allowed = f"publish: {publish}, subscribe: {json.dumps(list(right.subscribe))}"
    if right.replies:
        allowed += f', allow_responses: {{max: 1, expires: "{_REPLY_SECONDS}s"}}'
    return f"  {{nkey: {key}, permissions: {{{allowed}}}}} # {name}"


def _clustered(cluster: Cluster, folder: Path) -> list[str]:
    """Return how servers know each other: by certificates of the one root, and by nothing else."""
    mutual = block("tls", [
        f"cert_file: {text_of(folder / _CERTIFICATE)}", f"key_file: {text_of(folder / _KEY)}",
        f"ca_file: {text_of(folder / _ROOT)}", "verify: true", "timeout: 5",
    ])  # fmt: skip
    lines = [f"server_name: {text_of(cluster.name)}"] if cluster.name else []
    if cluster.listen:
        routes = [f"nats-route://{at}" for at in cluster.routes]
        lines += block("cluster", [
            "name: secure-fgl", f"listen: {text_of(cluster.listen)}", "no_advertise: true",
            f"routes: {json.dumps(routes)}", *mutual,
        ])  # fmt: skip
    if cluster.leaves:
        plain = [line for line in mutual if "verify" not in line and "ca_file" not in line]
        lines += block("leafnodes", [f"listen: {text_of(cluster.leaves)}", *plain])
    return lines


def lines_of(lines: Sequence[str]) -> str:
    """Return the text of a configuration."""
    return "\n".join(lines) + "\n"


def block(name: str, lines: Sequence[str]) -> list[str]:
    """Return a block of a server's configuration."""
    return [f"{name} {{", *(f"  {line}" for line in lines), "}"]


def text_of(value: object) -> str:
    """Return a value as a configuration quotes it."""
    return json.dumps(str(value))


def new_root(folder: Path) -> str:
    """Return the root certificate (PEM) of a broker's folder; it is made where there is none.

    Its key signs the servers' certificates and stays in the folder. Raises UsageError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / _ROOT).exists():
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "secure-fgl broker")])
            root = (
                _certificate(name, name, key, _ROOT_DAYS)
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(_usage(signs=True), critical=True)
                .sign(key, hashes.SHA256())
            )
            Folder(folder).write(_ROOT_KEY, _private(key))
            Folder(folder, mode=0o644).write(_ROOT, root.public_bytes(Encoding.PEM))
        return (content(folder / _ROOT, _SLACK) or b"").decode("ascii")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}).") from error


def write_config(
    charters: Sequence[Charter], folder: Path, *, listen: str, cluster: Cluster | None = None
) -> Path:
    """Write a server's configuration, with a certificate for the names that the charters have.

    Args:
        charters: of the runs that it carries; `broker config` has checked that all signed.
        folder: of the broker; its root is the one that the charters name, or the charters name
            none and the operator puts server.pem and server.key there.
        listen: ``HOST:PORT``.
        cluster: where it is one of several servers, or takes leaf nodes.

    Returns:
        The file, in a folder of its own where the server has a name.

    Raises:
        UsageError: the charters name another root, or files cannot be written.
    """
    name = cluster.name if cluster is not None else ""
    if name and not _NAME.fullmatch(name):
        raise UsageError("A server's name has letters, digits and dashes.", fix="--name north")
    at = (folder / name if name else folder).resolve()
    text = server_config(charters, at, listen=listen, cluster=cluster)
    roots = {charter.broker.root for charter in charters}
    try:
        if roots != {""}:
            root = (content(folder / _ROOT, _SLACK) or b"").decode() if folder.is_dir() else ""
            if roots != {root}:
                raise UsageError(
                    f"The charters name another root certificate than {folder / _ROOT}.",
                    why="sites take a server for theirs only under the root in the charter",
                    fix="give the folder that charter draw --broker was given",
                )
            hosts = sorted({host for charter in charters for host in charter.broker.hosts})
            issue(folder, at, hosts)
        elif cluster is not None and cluster.listen:
            raise UsageError(
                "A cluster's servers know each other by a root certificate of their own.",
                why="the charters name none", fix="give charter draw --broker FOLDER",
            )  # fmt: skip
        elif not (at / _CERTIFICATE).exists():
            raise UsageError(
                f"{at / _CERTIFICATE} is missing.",
                why="the charters name no root, so the certificate is one that systems know",
                fix=f"put certificate and key there, as {_CERTIFICATE} and {_KEY}",
            )
        Folder(at).write(CONFIG_FILE, text.encode())
    except OSError as error:
        raise UsageError(f"{at} cannot be written ({error.strerror}).") from error
    return at / CONFIG_FILE


def issue(folder: Path, at: Path, hosts: Sequence[str]) -> None:
    """Issue a server's certificate anew.

    Args:
        folder: of the root and its key.
        at: where certificate and key go, and the root's certificate.
        hosts: names and addresses of the server.
    """
    root = x509.load_pem_x509_certificate((folder / _ROOT).read_bytes())
    signing = load_pem_private_key((folder / _ROOT_KEY).read_bytes(), None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{folder / _ROOT_KEY} is no key of ours.")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    made = (
        _certificate(name, root.subject, key, _SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(uses, critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_host, hosts)]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    Folder(at).write(_KEY, _private(key))
    Folder(at, mode=0o644).write(_CERTIFICATE, made.public_bytes(Encoding.PEM))
    if at.resolve() != folder.resolve():
        Folder(at, mode=0o644).write(_ROOT, root.public_bytes(Encoding.PEM))


def _certificate(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder().subject_name(name).issuer_name(issuer)
        .public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )  # fmt: skip


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# --- A leaf node: a site's own server, by which its carrier reaches the broker (the hub) ---
#
# For a site from which one machine alone may connect outwards. The leaf node logs in at the hub
# with the key of the party's carrier, so the hub holds it to what that party may do, whatever the
# leaf's own configuration says (`config.rights`, `Cluster.behind`). The carrier connects to the
# leaf node with the same key, and knows it by a root certificate that the site made.
#
# One leaf node serves one party in one run.

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
