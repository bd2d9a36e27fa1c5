"""Bundles of fixed size, and sums of integers that are exact, unbiased and never wrap."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crypto.errors import CryptoError
from crypto.quantiser import Packing
from crypto.samplers import Stream
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import BadEnvelope, UnfitMessage
from protocols.messages import ReleasedMessage, SumMessage, blob, count, equal, real
from protocols.policy.guards import Clip, Quantise
from protocols.wire.codec import bundle_bytes, decode, encode, field_bytes, pieces
from protocols.wire.roster import bytes_digest, given_digest
from tests.protocols.toys import Start, Update

DIMS = {"d": 5, "records": 10, "n": 3}


class Wide(ReleasedMessage):
    matrix: object = real("n", 2, unit="u", meaning="m")
    small: object = real("d", unit="u", meaning="m", wire="f4")
    one: float = real(unit="u", meaning="m")
    counts: object = count("n", unit="u", meaning="m")
    single: int = count(unit="u", meaning="m")
    raw: bytes = blob("n", unit="byte", meaning="m")


class Score(SumMessage):
    good: int = count(unit="record", meaning="m")
    table: object = count("n", 2, unit="record", meaning="m")


class Pair(SumMessage):
    left: object = real("d", unit="u", meaning="m")
    right: object = real("n", unit="u", meaning="m", scale="records")


finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**64 - 1)
wides = st.builds(
    Wide,
    matrix=hnp.arrays(np.float64, (3, 2), elements=finite),
    small=hnp.arrays(np.float32, 5, elements=st.floats(width=32, allow_nan=False,
                                                       allow_infinity=False)),
    one=finite,
    counts=hnp.arrays(np.uint64, 3, elements=counts),
    single=counts,
    raw=st.binary(min_size=3, max_size=3),
)  # fmt: skip


@given(wides)
def test_a_bundle_comes_back_as_it_was(message):
    raw = encode([message], DIMS)
    assert len(raw) == bundle_bytes((Wide,), DIMS) == 48 + 20 + 8 + 24 + 8 + 3
    assert equal(decode((Wide,), raw, DIMS)[0], message)


@given(st.binary(min_size=111, max_size=111))
def test_what_bytes_decode_to_has_no_other_encoding_nor_digest(raw):
    start = encode([Start(weights=np.arange(5, dtype=np.float32))], DIMS)
    try:
        messages = decode((Start, Wide), start + raw, DIMS)
    except BadEnvelope:  # NaN or infinity
        return
    assert encode(messages, DIMS) == start + raw
    parts = pieces((Start, Wide), start + raw, DIMS)
    digest = bytes_digest(list(zip((Start, Wide), parts, strict=True)))
    assert digest == given_digest(messages, DIMS)
    assert digest != bytes_digest([(Wide, parts[1]), (Start, parts[0])])


def test_what_is_decoded_lies_as_any_array_does_and_keeps_nothing_else_in_memory():
    wide = Wide(matrix=np.ones((3, 2)), small=np.ones(5), one=1.0, counts=np.ones(3, int),
                single=1, raw=b"abc")  # fmt: skip
    start = Start(weights=np.ones(5))
    found = decode((Start, Wide), encode([start, wide], DIMS), DIMS)
    arrays = [found[0].weights, found[1].matrix, found[1].small, found[1].counts]
    for array in arrays:  # how sums round depends on where numbers lie: a run taken up copies them
        assert array.flags.aligned and not array.flags.writeable
        owner = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        assert len(owner) == array.nbytes


def test_a_message_that_was_encoded_before_is_not_encoded_again():
    start, update = Start(weights=np.arange(5, dtype=np.float32)), Update(delta=np.ones(5), count=7)
    whole = encode([start, update], DIMS)
    known = {start: encode([start], DIMS)}
    assert encode([start, update], DIMS, known) == whole
    assert encode([start, update], DIMS, {start: b"marked"}).startswith(b"marked")
    other = Start(weights=np.zeros(5, dtype=np.float32))  # of the same type, and another message
    assert encode([other], DIMS, known) == encode([other], DIMS) != known[start]


def test_a_bundle_of_several_has_the_sum_of_their_sizes():
    start = Start(weights=np.arange(5, dtype=np.float32))
    update = Update(delta=np.arange(5.0), count=7)
    raw = encode([start, update], DIMS)
    assert len(raw) == sum(field_bytes(f, DIMS) for k in (Start, Update) for f in k.fields)
    found = decode((Start, Update), raw, DIMS)
    assert equal(found[0], start)
    assert equal(found[1], update)
    assert type(found[1].count) is int


@given(st.binary(max_size=80))
def test_any_other_length_is_refused(raw):
    size = bundle_bytes((Update,), DIMS)
    if len(raw) != size:
        with pytest.raises(BadEnvelope):
            decode((Update,), raw, DIMS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_a_number_neither_leaves_nor_enters(value):
    for kind, dtype in ((Start, "<f4"), (Update, "<f8")):
        name = kind.fields[0].name
        facts = {name: np.full(5, value)} | ({"count": 1} if kind is Update else {})
        with pytest.raises(UnfitMessage):
            encode([kind(**facts)], DIMS)
        raw = np.full(5, value, dtype).tobytes() + (bytes(8) if kind is Update else b"")
        with pytest.raises(BadEnvelope):
            decode((kind,), raw, DIMS)


UNFIT = {
    "shape": Update(delta=np.zeros(4), count=1),
    "axes": Update(delta=np.zeros((5, 1)), count=1),
    "scalar": Update(delta=0.0, count=1),
    "ragged": Update(delta=[[1.0], [1.0, 2.0]], count=1),
    "text": Update(delta=["x"] * 5, count=1),
    "objects": Update(delta=np.array([None] * 5), count=1),
    "complex": Update(delta=np.zeros(5, complex), count=1),
    "bool": Update(delta=np.zeros(5, bool), count=1),
    "negative": Update(delta=np.zeros(5), count=-1),
    "fraction": Update(delta=np.zeros(5), count=1.0),
    "vector": Update(delta=np.zeros(5), count=np.zeros(1, int)),
    "huge": Update(delta=np.zeros(5), count=2**64),
    "missing": Update(delta=None, count=1),
}


def layout(norm="linf", bound=0.5, bits=16, kinds=(Update,)):
    return SumLayout(kinds, Clip(norm=norm, bound=bound), Quantise(bits=bits), DIMS)


def stream(label=1):
    return Stream(bytes([label]) * 32)


@pytest.mark.parametrize("case", UNFIT)
def test_unfit_messages_do_not_leave(case):
    with pytest.raises(UnfitMessage) as caught:
        encode([UNFIT[case]], DIMS)
    assert "Update." in caught.value.what
    with pytest.raises(UnfitMessage):
        layout().encode([UNFIT[case]], stream())


def test_a_blob_has_its_size():
    for raw in (b"", b"1234", "abc", bytearray(3)):
        with pytest.raises(UnfitMessage):
            encode([Wide(matrix=np.zeros((3, 2)), small=np.zeros(5), one=0.0,
                         counts=np.zeros(3, int), single=0, raw=raw)], DIMS)  # fmt: skip


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_number_too_large_for_its_wire_type_does_not_leave_as_infinity():
    with pytest.raises(UnfitMessage):
        encode([Start(weights=np.full(5, 1e300))], DIMS)


# --- sums -------------------------------------------------------------------------------------

values = hnp.arrays(np.float64, 5, elements=st.floats(-20, 20))
updates = st.builds(Update, delta=values, count=st.integers(0, 2**32 - 1))


@given(st.lists(updates, min_size=1, max_size=8), st.integers(4, 32))
def test_totals_are_the_sum_within_one_step_each_and_counts_are_exact(messages, bits):
    sums = layout(bits=bits)
    vectors = [sums.encode([m], stream(i + 1))[0] for i, m in enumerate(messages)]
    assert all(v.shape == (sums.length,) and int(v.max()) < 2**bits for v in vectors)
    total = sums.decode(np.sum(vectors, axis=0), len(messages))[Update]
    step = 5.0 / (2 ** (bits - 1) - 1)
    clipped = sum(np.clip(m.delta, -5, 5) for m in messages)
    assert np.all(np.abs(total.delta - clipped) <= len(messages) * step * (1 + 1e-9))
    assert total.count == sum(m.count for m in messages)


@given(st.lists(updates, min_size=4, max_size=8))
def test_packed_totals_are_the_same_totals(messages):
    sums, packing = layout(), Packing(16, 8, 44)
    vectors = [sums.encode([m], stream(i + 1))[0] for i, m in enumerate(messages)]
    plain = np.sum([packing.pack(v.view(np.uint64)) for v in vectors], axis=0, dtype=np.uint64)
    assert int(plain.max()) < 2**44
    unpacked = packing.unpack(plain, sums.length)
    assert np.array_equal(unpacked, np.sum(vectors, axis=0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("bits", "cohort"), [(4, 128), (16, 5), (16, 128), (32, 128)])
def test_the_largest_cohort_of_largest_values_does_not_wrap(sign, bits, cohort):
    sums, packing = layout(bits=bits), Packing(bits, cohort, 44)
    message = Update(delta=np.full(5, sign * 1e300), count=2**32 - 1)
    vector, clipped = sums.encode([message], stream())
    assert clipped
    plain = packing.pack(vector.view(np.uint64)) * np.uint64(cohort)
    total = sums.decode(packing.unpack(plain, sums.length), cohort)[Update]
    assert np.allclose(total.delta, sign * 5.0 * cohort, rtol=1e-12)
    assert total.count == cohort * (2**32 - 1)


@given(st.integers(4, 32), st.integers(1, 20))
def test_zero_stays_zero(bits, cohort):
    sums = layout(bits=bits)
    vector, clipped = sums.encode([Update(delta=np.zeros(5), count=0)], stream())
    total = sums.decode(vector * cohort, cohort)[Update]
    assert not clipped
    assert not total.delta.any()
    assert total.count == 0


def test_counts_of_any_shape_are_exact():
    sums = layout(kinds=(Score,))
    table = np.array([[1, 2**32 - 1], [0, 65535], [65536, 7]])
    vector, _ = sums.encode([Score(good=2**31, table=table)], stream())
    total = sums.decode(vector * 3, 3)[Score]
    assert total.good == 3 * 2**31
    assert np.array_equal(total.table, 3 * table)


@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e9, 1e9)))
def test_l2_bounds_the_joint_norm_and_keeps_the_direction(delta):
    sums = layout("l2", bound=0.5)
    vector, clipped = sums.encode([Update(delta=delta, count=1)], stream())
    found = sums.decode(vector, 1)[Update].delta
    step, norm = 5.0 / 32767, float(np.linalg.norm(delta))
    expected = delta * min(1.0, 5.0 / norm) if norm else delta
    assert np.all(np.abs(found - expected) <= step * (1 + 1e-9))
    if abs(norm - 5.0) > 1e-9:
        assert clipped == (norm > 5.0)


def test_o17_fields_are_clipped_by_their_joint_norm_each_scaled_to_the_bound():
    sums = layout("l2", bound=0.5, kinds=(Pair,))
    left, right = np.full(5, 0.8 * 0.5 / math.sqrt(5)), np.full(3, 0.6 * 5.0 / math.sqrt(3))
    for times in (1.0, 1.2):  # at 1.2 neither field alone is beyond the bound
        vector, clipped = sums.encode([Pair(left=times * left, right=times * right)], stream())
        found = sums.decode(vector, 1)[Pair]
        assert clipped == (times > 1)
        assert np.abs(found.left - left).max() < 1e-4
        assert np.abs(found.right - right).max() < 1e-3


@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e9, 1e9)))
def test_linf_clips_each_entry(delta):
    vector, clipped = layout().encode([Update(delta=delta, count=1)], stream())
    found = layout().decode(vector, 1)[Update].delta
    assert np.all(np.abs(found - np.clip(delta, -5, 5)) <= 5.0 / 32767 * (1 + 1e-9))
    assert clipped == bool(np.any(np.abs(delta) > 5))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("large", [1e100, 1e155, 1e307])
def test_l2_of_a_huge_vector_is_the_bound_and_not_zero(large):
    vector, clipped = layout("l2").encode([Update(delta=np.full(5, large), count=1)], stream())
    found = layout().decode(vector, 1)[Update].delta
    assert clipped
    assert np.linalg.norm(found) == pytest.approx(5.0, rel=1e-3)


def test_rounding_has_no_bias():
    draws, value = 4000, 0.3 * 5.0 / 7  # a third of a step at 4 bits
    sums, source, found = layout(bits=4), stream(9), []
    for _ in range(draws):
        vector, _ = sums.encode([Update(delta=np.full(5, value), count=1)], source)
        found.append(sums.decode(vector, 1)[Update].delta)
    step = 5.0 / 7
    error = abs(float(np.mean(found)) - value)
    assert error < 5 * step * math.sqrt(0.3 * 0.7 / (5 * draws))
    assert {round(float(v / step)) for v in np.unique(found)} == {0, 1}


def test_impossible_totals_are_refused():
    sums = layout()
    for bad in (np.full(sums.length, 3 * 65535 + 1), np.zeros(sums.length + 1), np.zeros(0)):
        with pytest.raises(UnfitMessage):
            sums.decode(bad.astype(np.int64), 3)


@settings(max_examples=20)
@given(st.floats(1e-6, 1e6), st.integers(4, 32))
def test_every_policy_bound_has_a_grid(bound, bits):
    try:
        sums = layout(bound=bound, bits=bits)
    except CryptoError:
        pytest.fail("a policy that loads must have a grid")
    vector, _ = sums.encode([Update(delta=np.full(5, bound), count=1)], stream())
    assert int(vector.max()) < 2**bits
