"""A peer's bytes cannot end a process: whatever is sent to a native loader is refused or taken.

SEAL, libsodium and OpenSSL run inside ours. What ends them ends the aggregator, or every client;
nothing can be caught. So no loader may hand them a size, a count or a level that a peer claims.
"""

from __future__ import annotations

import ast
import struct
from pathlib import Path

import pytest
import tenseal
import zstandard

import crypto
from crypto.errors import CryptoError, SelfTestFailed
from crypto.homomorphic.he import NAMES, scheme
from crypto.homomorphic.seal import Scratch
from tests.laws.frames import MUTATED, SEAL_HEAD, STRUCTURED, Loader, frame
from tests.laws.fuzzing import GROWTH, MUTATIONS, STRUCTURES, Outcome, assault, shares
from tests.laws.native import loaders

SEED = 20260101
FLOOR = Path(crypto.__file__).parent
NATIVE = {"tenseal", "rbcl", "zstandard", "cryptography"}


def imports(path: Path) -> set[str]:
    """What native libraries a module of ours imports, SEAL's bindings at second hand too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[0] for name in names} & NATIVE
        if isinstance(node, ast.ImportFrom) and node.module == "crypto.homomorphic.seal":
            found |= {"tenseal"} & {"tenseal" for alias in node.names if alias.name == "seal"}
    return found


USERS = {path.stem: imports(path) for path in sorted(FLOOR.rglob("*.py")) if imports(path)}


# --- the law ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [8, pytest.param(1, marks=pytest.mark.long)])
def test_no_frame_ends_the_process_or_brings_out_an_error_that_is_not_ours(part: int) -> None:
    mutations, structures = MUTATIONS // part, STRUCTURES // part
    outcome = assault(loaders(), SEED, mutations, structures)
    assert outcome.failure is None, outcome.failure
    assert outcome.frames[MUTATED] >= mutations
    assert outcome.frames[STRUCTURED] >= structures
    assert 0 <= outcome.growth <= GROWTH
    for loader in loaders():  # not all stopped at a length, a tag or a lock
        deep = "tenseal" in set().union(*map(USERS.get, loader.modules))
        assert outcome.taken[loader.name] or not deep or "locked" in loader.name


@pytest.mark.parametrize("loader", loaders(), ids=lambda loader: loader.name)
def test_every_loader_is_met_by_frames_that_go_all_the_way(loader: Loader) -> None:
    for valid in loader.frames:
        loader.feed(valid)
    refused = 0
    for number in range(60):
        for kind in (MUTATED, STRUCTURED):
            try:
                loader.feed(frame(loader, kind, SEED, number))
            except CryptoError:
                refused += 1
    assert refused, "a loader that refuses nothing of this is not looked at"


def test_frames_follow_from_their_seed_and_differ_between_seeds() -> None:
    (loader, *_) = loaders()
    for kind in (MUTATED, STRUCTURED):
        one = [frame(loader, kind, SEED, number) for number in range(50)]
        assert one == [frame(loader, kind, SEED, number) for number in range(50)]
        assert one != [frame(loader, kind, SEED + 1, number) for number in range(50)]


# --- every native loader is in the list -------------------------------------------------------


def test_every_module_that_reaches_native_code_has_loaders_in_the_list() -> None:
    listed = {module for loader in loaders() for module in loader.modules}
    assert listed == set(USERS)
    assert len({loader.name for loader in loaders()}) == len(loaders())


def test_the_list_of_users_sees_what_it_looks_for(tmp_path: Path) -> None:
    for line, found in (
        ("import tenseal.sealapi as x", {"tenseal"}),
        ("def f():\n    from cryptography.x import y", {"cryptography"}),
        ("from crypto.homomorphic.seal import Scratch, seal", {"tenseal"}),
        ("from crypto.homomorphic.seal import Scratch", set()),
        ("import numpy", set()),
    ):
        (tmp_path / "a.py").write_text(line, "utf-8")
        assert imports(tmp_path / "a.py") == found


def test_one_module_alone_imports_each_parser() -> None:
    owners = {name: [user for user, found in USERS.items() if name in found] for name in NATIVE}
    assert owners["rbcl"] == ["oprf"]
    assert owners["zstandard"] == ["seal"]
    bindings = [path.stem for path in FLOOR.rglob("*.py") if "import tenseal" in path.read_text()]
    assert bindings == ["seal"]


def loads(text: str) -> list[bool]:
    """Of every call of a `load`: whether it reads what stands behind one of our own heads."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute)]
    return [_is_ours(call) for call in named if call.func.attr == "load"]


def _is_ours(call: ast.Call) -> bool:
    put = call.args[-1]
    if not isinstance(put, ast.Call) or ast.unparse(put.func) != "scratch.put":
        return False
    head = put.args[0]
    return isinstance(head, ast.Attribute) and ast.unparse(head.value) in ("heads", "self._heads")


def test_seal_is_given_no_head_but_ours() -> None:
    asked = {path.stem: loads(path.read_text("utf-8")) for path in FLOOR.rglob("*.py")}
    assert {name for name, calls in asked.items() if calls} <= set(USERS)
    assert sum(map(len, asked.values())) >= 10
    assert all(map(all, asked.values()))
    for line in ("key.load(context, scratch.put(raw, b''))", "key.load(context, path)"):
        assert loads(line) == [False]  # the control


def test_a_head_announces_as_many_words_as_follow() -> None:
    heads = scheme()._heads
    with Scratch() as scratch:
        assert scratch.put(heads.plaintext, bytes(8 * heads.degree))
        for wrong in (0, 8 * heads.degree - 8, 8 * heads.degree - 1, 8 * heads.degree + 1):
            with pytest.raises(SelfTestFailed, match="number of words"):
                scratch.put(heads.plaintext, bytes(wrong))


@pytest.mark.parametrize("name", NAMES)
def test_frames_speak_the_dialect_of_the_seal_that_is_installed(name: str) -> None:
    assert scheme(name)._heads.ciphertext.startswith(SEAL_HEAD)


# --- the harness notices ----------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value >> 7:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tenseals() -> Loader:
    """TenSEAL's documented API on a ciphertext whose SEAL object is the peer's own."""
    kind = tenseal.SCHEME_TYPE.BFV
    context = tenseal.context(kind, 4096, 1032193, [54, 55], n_threads=1)
    valid = tenseal.bfv_vector(context, [1, 2, 3]).serialize()
    start = valid.index(SEAL_HEAD)
    (length,) = struct.unpack_from("<Q", valid, start + 8)
    shape = valid[: start - 1 - len(varint(length))]

    def load(saved: bytes) -> object:
        try:
            wrapped = shape + b"\x12" + varint(len(saved)) + saved
            return tenseal.bfv_vector_from(context, wrapped)
        except Exception:  # as careful as Python can be
            raise CryptoError from None

    saved = valid[start : start + length]
    body = zstandard.ZstdDecompressor().decompressobj().decompress(saved[16:])
    return Loader("control", (), load, [saved], parms=[body[:32]])


def first(outcome: Outcome) -> str:
    assert outcome.failure is not None
    return outcome.failure


def test_control_a_loader_that_believes_a_peer_s_header_ends_its_process() -> None:
    loader = tenseals()
    outcome = assault([loader], SEED, 0, 3000)
    assert "signal SIGABRT" in first(outcome)
    assert f"seed {SEED}" in first(outcome)
    assert "terminate called" in first(outcome)
    again = Loader("again", (), loader.feed, loader.frames, [outcome.found])
    assert "structured frame 0 of" in first(assault([again], SEED, 0, 1))  # this very frame did it


def test_control_an_error_that_is_not_ours_is_reported() -> None:
    def load(data: bytes) -> object:
        return data.decode("ascii")  # raises UnicodeDecodeError

    outcome = assault([Loader("control", (), load, [b"abc"])], SEED, 500, 0)
    assert "UnicodeDecodeError" in first(outcome)
    with pytest.raises(UnicodeDecodeError):
        load(outcome.found)


@pytest.mark.parametrize(("size", "said"), [(96 << 20, "memory grew"), (1 << 32, "MemoryError")])
def test_control_memory_that_a_frame_claims_is_reported(size: int, said: str) -> None:
    calls = []

    def load(data: bytes) -> object:
        calls.append(data)
        return len(b"\1" * size) if len(calls) == 100 else 0

    assert said in first(assault([Loader("control", (), load, [b"abc"])], SEED, 500, 0))


def test_each_loader_gets_its_share() -> None:
    for frames in (100, MUTATIONS):
        counts = shares(loaders(), frames)
        assert frames <= sum(counts) < frames + len(loaders())
        assert min(counts) >= 1
