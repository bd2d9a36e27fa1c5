"""Sparse products with exact gradients, propagation matrices, and dropout with its own generator.

Feature matrices of citation and co-author graphs have thousands of columns and are more than 99 %
zero, so they stay sparse: the first layer computes X W, then propagates. Because propagation is
linear, P (X W) = (P X) W exactly; nothing of size nodes x features is ever made dense.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Weighing

__all__ = [
    "Features",
    "Propagation",
    "Sparse",
    "dropout",
    "product",
    "propagation",
    "rows",
]


class Sparse(NamedTuple):
    """A constant sparse matrix beside its transpose, both float32 CSR.

    The gradient of A B with respect to B is Aᵀ G. Keeping Aᵀ ready makes the backward pass a
    product like the forward one (four times faster than converting in every step).
    """

    matrix: Tensor
    transpose: Tensor

    @classmethod
    def of(cls, array: sp.csr_array) -> Sparse:
        """From scipy, shape (n, m), duplicates summed, indices sorted."""
        tidy = sp.csr_array(array).astype(np.float32)
        tidy.sum_duplicates()
        return cls(_csr(tidy), _csr(sp.csr_array(tidy.T)))


Features = Tensor | Sparse
"""Node features, shape (N, F): a dense tensor, or sparse rows that are never made dense."""

Propagation = Sparse
"""Message-passing matrix P, shape (N, N): row i weighs what node i receives."""


def _csr(array: sp.csr_array) -> Tensor:
    # clone: torch's allocator aligns to 64 bytes, numpy's does not always, and vector kernels may
    # round differently on another alignment. Equal inputs must give equal bits.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly")
        return torch.sparse_csr_tensor(
            torch.from_numpy(array.indptr.astype(np.int64)),
            torch.from_numpy(array.indices.astype(np.int64)),
            torch.from_numpy(array.data).clone(),
            size=array.shape,
        )


class _Product(torch.autograd.Function):
    """A B for a constant sparse A and a dense B; gradient Aᵀ G, itself such a product."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transpose: Tensor, dense: Tensor) -> Tensor:
        ctx.save_for_backward(matrix, transpose)
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        matrix, transpose = ctx.saved_tensors
        if not torch.is_grad_enabled():  # nobody differentiates the gradient
            return None, None, transpose @ grads[0]
        return None, None, _Product.apply(transpose, matrix, grads[0])  # type: ignore[no-untyped-call]


def rows(features: Features, wanted: npt.NDArray[np.int64]) -> Features:
    """Return some rows of the features, (n, F), in the order they are asked for."""
    if not isinstance(features, Sparse):
        return features[torch.from_numpy(wanted)]
    parts = (features.matrix.values(), features.matrix.col_indices())
    values, columns = (part.numpy() for part in parts)
    starts = features.matrix.crow_indices().numpy()
    nodes, wide = features.matrix.shape
    whole = sp.csr_array((values, columns, starts), shape=(nodes, wide))
    return Sparse.of(whole[wanted])


def product(left: Features, right: Tensor) -> Tensor:
    """`left @ right`, dense (n, k), differentiable in `right`; a sparse `left` is constant."""
    if isinstance(left, Sparse):
        result: Tensor = _Product.apply(left.matrix, left.transpose, right)  # type: ignore[no-untyped-call]
        return result
    return left @ right


def dropout(hidden: Tensor, rate: float, generator: torch.Generator, training: bool) -> Tensor:
    """Inverted dropout whose mask comes from `generator`, never from the global stream.

    It is used on hidden layers only. Dropping stored input features would make a new sparse matrix
    and a new transpose in every step, and bag-of-words rows are thinned by hidden dropout as well.
    """
    if not training or rate == 0.0:
        return hidden
    # bernoulli_ with a generator takes three times as long, a third of a GIN's epoch.
    keep = torch.rand(hidden.shape, generator=generator) >= rate
    return hidden * keep / (1.0 - rate)


def propagation(edges: Tensor, nodes: int, kind: Weighing) -> Propagation:
    """The propagation matrix of an undirected graph.

    Args:
        edges: int64 (2, M), each undirected pair once, no self-loops.
        nodes: N.
        kind: "symmetric" is D^-1/2 (A + I) D^-1/2 with D the degrees of A + I (Kipf and Welling,
            ICLR 2017, eq. 2); "mean" is D^-1 A, zero rows for isolated nodes (Hamilton et al.,
            NeurIPS 2017, the mean aggregator); "mean_or_self" is the same with a one on the
            diagonal for isolated nodes, which so hear themselves; "sum" is A (Xu et al., ICLR 2019,
            GIN).
    """
    pairs = np.hstack([edges.numpy(), edges.numpy()[::-1]])
    if kind == "symmetric":
        pairs = np.hstack([pairs, np.tile(np.arange(nodes), (2, 1))])
    elif kind == "mean_or_self":
        alone = np.flatnonzero(np.bincount(pairs[0], minlength=nodes) == 0)
        pairs = np.hstack([pairs, np.tile(alone, (2, 1))])
    links = sp.csr_array((np.ones(pairs.shape[1], bool), tuple(pairs)), shape=(nodes, nodes))
    links.sort_indices()
    degree = np.diff(links.indptr)
    weight = np.ones(links.nnz, dtype=np.float32)
    if kind == "symmetric":
        root = torch.from_numpy(degree).to(torch.float32).pow(-0.5).numpy()
        weight = np.repeat(root, degree) * root[links.indices]
    elif kind != "sum":
        weight /= np.repeat(degree, degree).astype(np.float32)
    return Sparse.of(sp.csr_array((weight, links.indices, links.indptr), shape=links.shape))
