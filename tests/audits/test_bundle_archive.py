"""Hostile archives: nothing is read that `pack` would not have written."""

from __future__ import annotations

import contextlib
import io
import json
import random
import stat
import struct
import zipfile
from dataclasses import asdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audits.bundle import archive
from audits.bundle.archive import MANIFEST, manifest, pack, read_manifest, unpack
from audits.checks.bundle import verify_bundle
from audits.evidence.steps import Status
from crypto.signing import canonical
from protocols.errors import EvidenceError
from protocols.versions import BUNDLE
from tests.audits.bundle_tools import DATA, FILES, UNSIGNED, changed, fails_at

OURS = BUNDLE.version

FLIPS = 1000
PLAIN = {"plan.json": b"{}", "policy.json": b"[]"}


def zipped(
    *members: tuple[str | zipfile.ZipInfo, bytes], method: int = 0, note: bytes = b""
) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as made:
        made.comment = note
        for name, data in members:
            made.writestr(name, data)
    return raw.getvalue()


def member(name: str, mode: int = stat.S_IFREG | 0o600, **more: object) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, mode << 16
    for key, value in more.items():
        setattr(info, key, value)
    return info


def refused(data: bytes, why: str = "") -> None:
    with pytest.raises(EvidenceError) as caught:
        unpack(data)
    assert caught.value.step == "manifest"
    assert why in str(caught.value)


def test_the_helper_of_these_tests_makes_what_pack_makes():
    assert zipped(*((member(name), data) for name, data in PLAIN.items())) == pack(PLAIN)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../plan.json",
        "ledger/../plan.json",
        "a/b/c",
        "..",
        ".hidden",
        "a\\b",
        "C:a",
        "a/",
        "a//b",
        "",
        "plan.json\n",
        "é",
        "x" * 101,
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(name):
    refused(zipped((member(name), b"x")), "path")
    with pytest.raises(EvidenceError):
        pack({name: b"x"})


def test_a_path_cut_by_a_nul_is_refused():
    refused(zipped((member("plan.jsonXa"), b"x")).replace(b"plan.jsonXa", b"plan.json\0a"), "path")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused():
    refused(zipped((member("a"), b"x"), (member("a"), b"y")), "one name")


def test_a_link_is_refused():
    refused(zipped((member("a", stat.S_IFLNK | 0o777), b"/etc/passwd")), "link")


def test_a_bomb_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was read"))
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refused(zipped(("a", bytes(1 << 20)), method=method), "compressed")
    monkeypatch.setattr(archive, "MAX_FILES", 2)
    refused(zipped(*((member(f"f{n}"), b"") for n in range(3))), "more than")


def test_files_that_overlap_are_refused_before_they_are_read(monkeypatch):
    # Sixty entries of the directory that all point at one kilobyte.
    data = zipped((member("f00"), bytes(1000)))
    at, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry = data[at:end]
    directory = b"".join(entry.replace(b"f00", b"f%02d" % n) for n in range(60))
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 60, 60, len(directory), at, 0)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was read"))
    refused(data[:at] + directory + tail, "overlap")


def test_an_encrypted_file_is_refused():
    data = bytearray(pack(PLAIN))
    for start in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[start] |= 1
    refused(bytes(data), "encrypted")


def test_a_larger_bundle_is_refused_unread(monkeypatch):
    monkeypatch.setattr(archive, "BUNDLE_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("was opened"))
    refused(bytes(101), "larger")
    with pytest.raises(EvidenceError):
        pack({"a": bytes(101)})


@pytest.mark.parametrize(
    "data",
    [
        b"x" + pack(PLAIN),
        pack(PLAIN) + b"x",
        pack(PLAIN) + pack(PLAIN),
        zipped(*((member(n), d) for n, d in PLAIN.items()), note=b"hello"),
        zipped(*((member(n), d) for n, d in reversed(PLAIN.items()))),
        zipped(*((member(n, comment=b"hello"), d) for n, d in PLAIN.items())),
        zipped(*((member(n, extra=b"\xfe\xca\0\0"), d) for n, d in PLAIN.items())),
        zipped(*((member(n, date_time=(2026, 1, 1, 0, 0, 0)), d) for n, d in PLAIN.items())),
        zipped(*((member(n, stat.S_IFREG | 0o4755), d) for n, d in PLAIN.items())),
    ],
)
def test_bytes_that_the_files_do_not_account_for_are_refused(data):
    refused(data, "laid out")


@pytest.mark.parametrize("data", [b"", b"PK", bytes(100), pack(PLAIN)[:-1], pack(PLAIN)[5:]])
def test_what_is_no_archive_is_refused(data):
    refused(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_without_a_crash(data):
    refused(data)
    found = verify_bundle(data)
    assert found.failed is not None and found.failed.name == "manifest"
    assert {s.status for s in found.steps[1:]} == {Status.NOT_CHECKED}


def test_a_thousand_flipped_bytes_are_a_thousand_times_detected():
    rng = random.Random(20_26)
    unseen = []
    for _ in range(FLIPS):
        data = bytearray(DATA)
        place = rng.randrange(len(data))
        data[place] ^= rng.randrange(1, 256)
        found = verify_bundle(bytes(data))
        if found.failed is None or found.failed.name != "manifest":
            unseen.append(place)
    assert not unseen


def test_no_flipped_byte_of_the_archive_s_own_structure_passes():
    small = pack(PLAIN)
    for place in range(len(small)):
        data = bytearray(small)
        data[place] ^= 0x01
        with contextlib.suppress(EvidenceError):
            assert unpack(bytes(data)) != PLAIN  # then a digest of the manifest differs


def test_a_file_that_is_not_listed_is_refused():
    for name in ("attacks.json", "ledger/extra.jsonl", "attestations/more.dsse.json"):
        fails_at("manifest", pack({**FILES, name: b"{}"}), "not listed")


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "private/a.json", "captured/a.json", "checkpoints/final.npz", "plan.html"],
)
def test_a_file_that_no_bundle_holds_is_refused_even_if_listed(name):
    entry = {"path": name, "sha256": "0" * 64, "size": 1, "type": "application/json"}
    rows = [*json.loads(FILES[MANIFEST])["files"], entry]
    rows.sort(key=lambda row: row["path"])
    text = canonical({"files": rows, "version": OURS})
    fails_at("manifest", pack({**FILES, name: b"x", MANIFEST: text}), "does not belong")


@pytest.mark.parametrize("name", ["plan.json", "metrics.jsonl", "ledger/client-1.jsonl"])
def test_a_listed_file_that_is_missing_is_refused(name):
    fails_at("manifest", pack({p: d for p, d in FILES.items() if p != name}), "missing")


@pytest.mark.parametrize("name", ["VERIFY.md", "roster.json", "report/report.json"])
def test_a_needed_file_may_not_be_left_out_of_the_manifest_either(name):
    rest = {p: d for p, d in UNSIGNED.items() if p not in (name, MANIFEST)}
    fails_at("manifest", pack({**rest, MANIFEST: manifest(rest)}), "lacks")


def test_a_manifest_in_another_form_is_refused():
    rows = [asdict(row) for row in read_manifest(FILES)]
    for document in (
        {"files": rows},
        {"files": rows, "version": OURS + 1},
        {"files": rows, "more": 1, "version": OURS},
        {"files": list(reversed(rows)), "version": OURS},
        {"files": [*rows, rows[0]], "version": OURS},
        {"files": [rows[0], *rows], "version": OURS},
        {"files": [*rows, None], "version": OURS},
        {"files": [{**rows[0], "path": 1}, *rows[1:]], "version": OURS},
        {"files": [{**rows[0], "size": rows[0]["size"] + 1}, *rows[1:]], "version": OURS},
        {"files": [{**rows[0], "type": "text/html"}, *rows[1:]], "version": OURS},
        {"files": [{**rows[0], "sha256": "0" * 64}, *rows[1:]], "version": OURS},
        {"files": [{**rows[0], "path": "VERIFY.md "}, *rows[1:]], "version": OURS},
        {"files": {}, "version": OURS},
        [],
    ):
        fails_at("manifest", pack({**FILES, MANIFEST: canonical(document)}))
    pretty = json.dumps(json.loads(FILES[MANIFEST]), indent=1).encode()
    fails_at("manifest", pack({**FILES, MANIFEST: pretty}), "canonical")
    fails_at("manifest", pack(changed(FILES, manifest_json=None)), "no manifest")


def test_swapped_files_are_seen():
    ledgers = sorted(path for path in FILES if path.startswith("ledger/"))
    for one, other in pairwise(ledgers):
        fails_at("manifest", pack({**FILES, one: FILES[other], other: FILES[one]}))
