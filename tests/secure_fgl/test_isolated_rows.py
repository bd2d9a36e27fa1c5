"""Terms of rows on their way out of a worker, and in a check of plug-ins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from protocols.errors import LocalProtocolError
from protocols.unready import unsummed_of
from secure_fgl.checking.probe import Notes
from secure_fgl.isolation.frames import PlainCodec, messages, said
from tests.protocols.rowed import Terms

DENSE = np.arange(6.0).reshape(2, 3)


def terms(matrix: Any) -> Terms:
    links = np.array([[0, 1], [7, 8]])
    return Terms.unsummed(own=np.array([2, 3]), terms=matrix, links=links, wanted=np.array([2]))


@pytest.mark.parametrize("matrix", [DENSE, sp.csr_array(DENSE)], ids=["dense", "sparse"])
def test_terms_come_out_of_a_worker_as_they_were(matrix: Any) -> None:
    codec = PlainCodec((Terms,))
    (found,) = messages(codec.unpack(codec.pack(said([terms(matrix)]))), (Terms,))
    known, made = unsummed_of(terms(matrix)), unsummed_of(found)
    assert known is not None and made is not None
    for name in ("own", "links", "wanted"):
        assert np.array_equal(getattr(made, name), getattr(known, name))
    whole = made.terms if isinstance(matrix, np.ndarray) else made.terms.toarray()
    assert np.array_equal(whole, DENSE)


def test_what_is_no_matrix_is_refused() -> None:
    rows = said([terms(sp.csr_array(DENSE))])
    rows[0][2]["indices"] = rows[0][2]["indices"] + 9
    with pytest.raises(ValueError, match="indices"):
        messages(rows, (Terms,))
    rows[0][2]["indices"] = "all"
    with pytest.raises(LocalProtocolError):
        messages(rows, (Terms,))


def test_a_check_of_plugins_reads_no_terms() -> None:
    notes = Notes()
    notes.measure(terms(DENSE))
    assert not notes.largest
