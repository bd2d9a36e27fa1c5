"""A14: a generator's last layer, solved for records; the published form is its control.

Trials: six clients of 30 records each, 32 drawn rows an answer. All draws are pinned, so no result
is false by chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._shared.neighbour_sizes import Sizes
from algorithms._shared.neighbours import at_codes, draw, entered, inputs, nearest, slopes
from audits.attacks import Answer, Answers, Material, attack
from audits.attacks._methods.span import guessed, named, solved
from audits.attacks._shared.models import AttackRow
from audits.evidence.steps import Case

pytestmark = pytest.mark.usefixtures("same_chance")

SIZES = Sizes(features=40, latent=8, hidden=64, draws=2)
WEIGHTS = torch.tensor(SIZES.initial(np.random.default_rng(5)))
CLIENTS, NODES, CODES = 6, 30, 16
NOISE = 0.05  # of a sum, where its largest length is the number of answers


def records(client: int) -> torch.Tensor:
    rng = np.random.default_rng([9, client])
    return torch.tensor((rng.random((NODES, SIZES.features)) < 0.2).astype(np.float32))


def _answer(client: int, drawn: Any, allowed: torch.Tensor, slope: torch.Tensor) -> Answer:
    rows, hidden = (part.flatten(0, 1).numpy().astype(float) for part in (drawn.rows, drawn.hidden))
    away = torch.cdist(drawn.rows.flatten(0, 1), records(client)).numpy()
    away[~allowed.repeat_interleave(SIZES.draws, dim=0).numpy()] = np.inf
    matched = np.where(np.isfinite(away).any(1), client * NODES + away.argmin(1), -1)
    last = slope.numpy().astype(float)[-65 * SIZES.features :].reshape(65, -1)
    entering = np.hstack([hidden, np.ones((len(hidden), 1))])
    return Answer(f"client-{client}", entering, rows, matched, last, last)


def published(client: int) -> Answer:
    """Return what FederatedScope's client sends: its own gradient at encodings of nodes, unclipped.

    Each code is held against all of the client's nodes.
    """
    codes = torch.randn((CODES, SIZES.latent), generator=torch.Generator().manual_seed(client + 1))
    codes = codes.relu()  # encodings leave a ReLU
    drawn = draw(SIZES, WEIGHTS, inputs(codes, SIZES.draws, torch.Generator().manual_seed(3)))
    allowed = torch.ones((CODES, NODES), dtype=torch.bool)
    slope = slopes(SIZES, WEIGHTS, drawn, nearest(drawn.rows, records(client), allowed))
    return _answer(client, drawn, allowed, slope.total(torch.ones(CODES)))


def ours(reader: int, *, noise: float, clip: float = 1.0) -> list[Answer]:
    """Return what all others answer in `generator_sums`, each with the sum that is read."""
    place, found = (7, 0, reader), []
    for client in (c for c in range(CLIENTS) if c != reader):
        pool = np.random.default_rng([client, reader]).integers(CODES, size=NODES)
        allowed = torch.from_numpy(pool[None, :] == np.arange(CODES)[:, None])
        slope = at_codes(SIZES, WEIGHTS, place, records(client), allowed)
        scales = clip / slope.norms().clamp_min(clip) / (CODES * clip)
        drawn = draw(SIZES, WEIGHTS, entered(SIZES, place, CODES))
        found.append(_answer(client, drawn, allowed, slope.total(scales)))
    total = np.sum([one.raw for one in found], axis=0)
    total = total + noise * np.random.default_rng(reader).standard_normal(total.shape)
    return [replace(one, seen=total) for one in found]


def row(case: Case, answers: list[Answer]) -> AttackRow:
    candidates = np.concatenate([records(c).numpy() for c in range(CLIENTS)]).astype(float)
    given = Answers("P12", "planted", candidates, tuple(answers))
    rows = attack(Material(case=case, answers=given), ["A14"], profile="default").rows
    return next(one for one in rows if one.id == "A14")


def test_slopes_are_solved_for_exactly_where_draws_are_few() -> None:
    one = published(1)
    slopes_, rows = solved(one.entered, one.raw), records(1).numpy()
    wanted = 2 / SIZES.draws * (one.drawn - rows[one.matched - NODES]) * (1 - one.drawn**2)
    assert np.abs(slopes_ - wanted).max() < 1e-3  # records themselves, up to float32


def test_control_the_published_form_falls(clear: Case) -> None:
    found = row(clear, [published(client) for client in range(CLIENTS)])
    assert found.verdict == "FAIL"
    assert found.protected is not None and float(found.protected.value) > 0.9
    assert found.null is not None and float(found.null.value) < 0.2


def test_under_noise_sums_name_nobody(clear: Case) -> None:
    answers = [one for reader in range(CLIENTS) for one in ours(reader, noise=NOISE)]
    found = row(clear, answers)
    assert found.verdict == "PASS"
    assert found.raw is not None and float(found.raw.value) > 0.5  # of one answer: it would fall


def test_without_noise_a_sum_of_five_names_fewer_than_one_answer() -> None:
    candidates = np.concatenate([records(c).numpy() for c in range(CLIENTS)]).astype(float)
    answers = ours(0, noise=0.0)
    alone = np.mean([named(one, one.raw, candidates) for one in answers])
    summed = np.mean([named(one, one.seen, candidates) for one in answers])
    blind = np.mean([guessed(one, candidates) for one in answers])
    assert alone > 0.5 > summed
    assert blind < 0.25


def test_where_no_generator_is_helped_there_is_nothing_to_ask(clear: Case) -> None:
    found = next(one for one in attack(Material(case=clear), ["A14"]).rows if one.id == "A14")
    assert found.verdict == "NOT_APPLICABLE"
