"""The refusals of this floor: one flat tree, three useful parts, no secrets."""

import copy
import pickle

import pytest

from crypto import errors
from crypto.homomorphic.he import scheme
from crypto.hpke import OpeningKey
from crypto.samplers import Stream
from crypto.signing import SigningKey

KINDS = [getattr(errors, name) for name in errors.__all__ if name != "CryptoError"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_is_flat_and_drawn_in_the_docstring(kind):
    assert kind.__bases__ == (errors.CryptoError,)
    assert f"── {kind.__name__} " in errors.__doc__


@pytest.mark.parametrize("kind", KINDS)
def test_a_bare_refusal_says_what_why_and_what_next(kind):
    what, why, todo = kind().diagnostics()
    assert str(kind()) == what
    assert all(part.endswith(".") and len(part) > 10 for part in (what, why, todo))


def test_a_detail_replaces_what_only():
    error = errors.OutOfRange("A public limit was passed.")
    assert str(error) == "A public limit was passed."
    assert error.diagnostics()[1] == errors.OutOfRange.why


def secrets():
    return [
        SigningKey.from_seed(b"\x11" * 32),
        OpeningKey.from_seed(b"\x22" * 32),
        Stream(b"\x33" * 32),
        scheme("bfv-sealapi").keygen()[1],
        scheme("ckks-sealapi").keygen()[1],
    ]


@pytest.mark.parametrize("secret", secrets(), ids=lambda secret: type(secret).__name__)
def test_secrets_have_no_face_and_no_way_out(secret):
    assert repr(secret) == str(secret) == f"<{type(secret).__name__}>"
    for way_out in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="refuses"):
            way_out(secret)
    with pytest.raises(TypeError):
        vars(secret)
