"""The ledger: what is written cannot be changed unseen, and what cannot be written is not said."""

import hashlib

import pytest

from crypto.errors import CryptoError
from crypto.merkle import leaf_hash, read, root
from crypto.signing import SigningKey, canonical
from protocols.errors import EvidenceError, LedgerError, Refused
from protocols.evidence.ledger import (
    ENTRY_LIMIT,
    KINDS,
    Ledger,
    MemoryStore,
    head_of,
    origin_of,
    read_lines,
)
from protocols.wire.envelope import NONE
from tests.protocols.toys import FullDisk
from tests.protocols.wire import World


def ledger(store=None, entries=4):
    store = store or MemoryStore()
    made = Ledger("bank", "run", store, lambda: "2026-01-01T00:00:00Z")
    for number in range(entries):
        made.record(KINDS[number % len(KINDS)], {"number": number})
    return made, store


@pytest.fixture
def written():
    made, store = ledger()
    made.commit()
    return made, store.lines


@pytest.fixture
def lines(written):
    return written[1]


def test_entries_are_chained(written):
    (made, lines), head = written, NONE
    for number, (entry, line) in enumerate(read_lines(lines)):
        assert (entry["seq"], entry["prev"]) == (number, head)
        assert (entry["party"], entry["run"]) == ("bank", "run")
        assert entry["kind"] == KINDS[number]
        head = head_of(line)
    assert made.head == head


def test_nothing_is_written_before_commit_and_once_by_it():
    made, store = ledger()
    assert store.lines == b""
    made.commit()
    before = store.lines
    made.commit()
    assert store.lines == before
    assert before.count(b"\n") == made.size == 4


def test_facts_cannot_replace_what_the_ledger_says():
    made, store = ledger(entries=0)
    made.record("open", {"kind": "close", "seq": 9, "prev": "x", "party": "eve", "run": "y",
                         "time": "z"})  # fmt: skip
    made.commit()
    ((entry, _),) = read_lines(store.lines)
    assert (entry["kind"], entry["seq"], entry["party"]) == ("open", 0, "bank")


def test_unknown_kinds_and_floats_are_refused():
    made, _ = ledger()
    size = made.size
    with pytest.raises(ValueError, match="known"):
        made.record("secret", {})
    with pytest.raises((CryptoError, ValueError)):
        made.record("open", {"value": 0.5})
    assert made.size == size


def test_an_entry_that_could_not_be_read_back_is_not_written():
    made, store = ledger()
    with pytest.raises((LedgerError, CryptoError, ValueError)):
        made.record("open", {"text": "x" * ENTRY_LIMIT})
    made.commit()
    assert len(read_lines(store.lines)) == 4


def tampered(lines):
    rows = lines.splitlines(keepends=True)
    return {
        "a changed value": lines.replace(b'"number":1', b'"number":7'),
        "a changed kind": lines.replace(b'"kind":"key"', b'"kind":"not"'),
        "a line gone": b"".join(rows[:1] + rows[2:]),
        "the first line gone": b"".join(rows[1:]),
        "two lines swapped": b"".join([rows[0], rows[2], rows[1], rows[3]]),
        "a line twice": b"".join(rows[:2] + rows[1:]),
        "a line of another ledger": b"".join(rows[:2]) + other_line() + b"".join(rows[3:]),
        "no newline at the end": lines[:-1],
        "half a line": lines[:-20],
        "an empty line": lines + b"\n",
        "an empty line between": rows[0] + b"\n" + b"".join(rows[1:]),
        "blanks": lines.replace(b":", b": ", 1),
        "windows line ends": lines.replace(b"\n", b"\r\n"),
        "a carriage return in it": lines.replace(b",", b",\r", 1),
        "not JSON": rows[0] + b"hello\n",
        "a list": rows[0] + b"[]\n",
        "not UTF-8": rows[0] + b'{"a":"\xff"}\n',
        "a key twice": lines.replace(b'"number":0', b'"number":0,"number":0'),
        "a huge line": rows[0] + b'{"a":"' + b"x" * ENTRY_LIMIT + b'"}\n',
        "deep nesting": rows[0] + b"[" * 5000 + b"]" * 5000 + b"\n",
        "true for one": lines.replace(b'"seq":1', b'"seq":true'),
    }


def other_line():
    made, store = ledger(entries=9)
    made.commit()
    return store.lines.splitlines(keepends=True)[4]


@pytest.mark.parametrize("case", tampered(b'{"number":0}\n' * 4))
def test_a_changed_ledger_is_seen(lines, case):
    changed = tampered(lines)[case]
    assert changed != lines
    with pytest.raises(EvidenceError) as caught:
        read_lines(changed)
    assert caught.value.step == "chain"


def test_every_flipped_bit_is_seen_by_chain_or_checkpoint(written):
    made, lines = written
    key = SigningKey.generate()
    note = read(made.checkpoint(key), name="bank", key=key.public)
    for place in range(len(lines)):
        changed = bytearray(lines)
        changed[place] ^= 1 << (place % 8)
        try:
            found = [line for _, line in read_lines(bytes(changed))]
        except EvidenceError:
            continue
        assert root([leaf_hash(line) for line in found]) != note.root


def test_a_cut_tail_is_a_chain_but_not_what_was_signed(written):
    made, lines = written
    key = SigningKey.generate()
    text = made.checkpoint(key)
    note = read(text, name="bank", key=key.public)
    whole = [line for _, line in read_lines(lines)]
    assert (note.origin, note.size) == (origin_of("run", "bank"), 4)
    assert root([leaf_hash(line) for line in whole]) == note.root
    shorter = read_lines(b"".join(whole[:-1]))
    assert len(shorter) != note.size
    with pytest.raises(CryptoError):
        read(text.replace("\n4\n", "\n3\n"), name="bank", key=key.public)
    with pytest.raises(CryptoError):
        read(text, name="bank", key=SigningKey.generate().public)


def test_a_full_disk_ends_the_ledger():
    made, store = ledger(FullDisk())
    with pytest.raises(LedgerError) as caught:
        made.commit()
    assert "No space left" in caught.value.what
    assert caught.value.fix
    for action in (made.commit, lambda: made.record("open", {})):
        with pytest.raises(LedgerError):
            action()
    assert store.lines == b""


def test_a_real_run_reads_back_with_its_checkpoints():
    world = World().start()
    world.round(1)
    for name, store in world.stores.items():
        session = world.session(name)
        session.ledger.commit()
        found = read_lines(store.lines)
        key = world.identities[name].signing
        note = read(session.ledger.checkpoint(key), name=name, key=key.public)
        assert note.size == len(found) == session.ledger.size
        assert root([leaf_hash(line) for _, line in found]) == note.root


def test_the_head_of_the_sender_travels_in_every_header():
    world = World().start()
    world.round(1)
    heads = {head_of(line) for s in world.stores.values() for _, line in read_lines(s.lines)}
    for name in world.stores:
        for entry in world.entries(name):
            if entry["kind"] == "receipt":
                assert entry["sender_head"] in heads
    line = world.stores["client-1"].lines.splitlines(keepends=True)[0]
    assert head_of(line) == hashlib.sha256(b"secure-fgl/ledger\0" + line).hexdigest()


def test_no_entry_holds_a_value_of_a_client():
    world = World(policy="unsafe_plaintext").start()
    for site in world.sites.values():
        site.delta[:] = 0.123456789
        site.count = 987654321
    world.round(1)
    raw = b"".join(s.lines for s in world.stores.values())
    assert b"0.1234" not in raw
    assert b"987654321" not in raw
    assert b"4938271605" not in raw


# Everything about an entry that the aggregator knows, or can try out in no time.
GUESSABLE = {
    *("kind", "party", "prev", "run", "seq", "time", "code", "exchange", "reason", "round"),
    *("detail", "attempt", "cohort", "given", "item", "key", "plan", "policy", "recipient"),
    *("sender", "bytes", "clipped", "commitment", "disclosure", "messages", "protection"),
    *("unsafe", "sender_head", "role", "roster", "event", "scheme", "members", "state"),
}


def guesses_confirmed(world, name):
    """Return the kinds of entries whose head follows from what the aggregator can guess."""
    found = []
    for entry, line in read_lines(world.stores[name].lines):
        guess = canonical({k: v for k, v in entry.items() if k in GUESSABLE}) + b"\n"
        assert head_of(line) != head_of(line[:-2] + b" }\n")
        if head_of(guess) == head_of(line):
            found.append(entry["kind"])
    return found


@pytest.mark.parametrize("refuse", [False, True])
def test_o27_a_head_that_travels_confirms_no_guess(refuse):
    # Heads stand in signed headers. Were a line without a secret of its own, its head would tell
    # whether the update was clipped, and why a client refused.
    world = World().start()
    if refuse:
        world.sites["client-1"].answer = lambda site, given: 1 // 0
        with pytest.raises(Refused):
            world.round(1)
    else:
        world.round(1)
    kinds = world.kinds("client-1")
    assert ("refusal" if refuse else "release") in kinds
    assert guesses_confirmed(world, "client-1") == []


def test_o29_every_entry_has_a_salt_of_its_own():
    """A constant one would stand in the guess as well."""
    world = World().start()
    world.round(1)
    entries = [entry for name in world.stores for entry in world.entries(name)]
    salts = [bytes.fromhex(entry["salt"]) for entry in entries]
    assert len(set(salts)) == len(entries) > 20
    assert {len(salt) for salt in salts} == {16}
    assert len({salt[at] for salt in salts for at in range(16)}) > 200  # bytes of all kinds
