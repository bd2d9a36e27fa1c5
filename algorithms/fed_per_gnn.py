"""FedPerGNN (Wu et al., Nature Communications 2022):  θ <- step(θ, Σ_u dL_u/dθ),  e_u stays.

Personalised recommendation with one user per client. A client's graph is its user, the items that
the user rated and, after an expansion, other users who hold the same items. A graph network over
it predicts the user's ratings (`algorithms.nn._shared.ratings`). What it learns is shared but for
the user's own vector, which is in no message; a row that one user alone rated gives it away, see
below.

Forms:

* `secure_items`: the gradient in the item table is dense, zero in rows of items that the user did
  not rate, and leaves inside a protected sum with the gradient in the layer. So which items a user
  rated needs no decoys where several rated the same: the aggregator reads the cohort's total. A row
  that only one user rated is that user's gradient, from which follow, in matrix factorisation,
  its vector and these ratings, and from the vector which rows of several users it is in (O12).
* `held_items`: the same, of items that at least `holders` clients rated. A first sum counts them,
  each client once in a run; for policies that ask for so many holders of a row. That they are so
  many is the aggregator's word, and a first round that is lost ends the run. It needs a single
  cohort.
* `published`: every client shows the rows of its items by itself. The policy clips them, adds
  pseudo items and Laplace noise (guards `clip`, `decoys` and `laplace` of NOISED), all of it under
  an Unsafe guard. The paper's "epsilon = 1" is 2 δ / λ for one number of one round; the plan says
  it beside that of the whole message. A policy takes this form if it lets ItemRows out and
  ItemGradient not (`messages`), see examples/published_policy.yaml.

* `matched_items`: as `secure_items`; and after `expand_after` rounds users who hold the same items
  become neighbours in each other's graphs (`algorithms._shared.item_expansion`). All clients take
  part in that step. A policy needs a rule for MATCH, see examples/matched_policy.yaml. The field's
  form, in which users read single others' vectors, is Unsafe:
  examples/matched_published_policy.yaml.
* `matched_held_items`: the same, of items that at least `holders` clients rated (`held_items`).
* `told_mean`, `told_items`, `noised_items`: each user's own noise hides all that it says, see
  `algorithms._shared.items`. For policies with a rule for NOISED and none for SUM.

The paper's third kind of noise is replaced by one with a proof: policies with noise on sums (preset
`calibrated`) clip each user's whole gradient in L2 and take `secure_items`, per user and run.

Where this departs from the paper and from the authors' code:

* They take one batch of a user's ratings in each of three epochs; here all of them, in every round,
  and the user's part takes `user_steps` steps to their one.
* The aggregator steps with its model's optimiser along the sum; theirs averages.
* See `algorithms.nn._shared.ratings` for the graph network. Their code masks the wrong attention
  scores and casts ratings to whole numbers after dividing them by 100.
* They draw 128 users a round: unions of random draws isolate users (attack A09). Here a round asks
  all clients, one fixed cohort after another (`cohorts`), or one of the disjoint cohorts into which
  lots cut all users once in a run, in turn (`drawn`; ADR 0045).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from algorithms._shared.item_expansion import ExpandedUser, Expanding, expanding_forms
from algorithms._shared.items import Aggregator, Server, User, checked, forms
from algorithms.tasks import Kind, Task
from protocols.forms import Algorithm

MODELS: Mapping[Kind, str] = {"rating": "user_gat"}
"""What the configuration's model is where it names none."""


def fed_per_gnn(  # noqa: PLR0913 - settings, all by name
    task: Task,
    *,
    epochs: int = 1,
    cohorts: int = 1,
    drawn: int = 0,
    decay: float = 0.2,
    user_steps: int = 3,
    user_lr: float = 0.5,
    user_decay: float = 1.0,
    holders: int = 4,
    blocks: int = 1,
    expand_after: int = 0,
    expand_every: int = 0,
    popular: Sequence[int] = (),
) -> Algorithm[Server]:
    """Return FedPerGNN for a task.

    Args:
        task: ratings, with a model of one user.
        epochs: passes of `user_steps` steps over a user's ratings in a round.
        cohorts: into how many fixed cohorts the clients fall; a round asks one after the other, and
            the model steps after each.
        drawn: how many users at least a round asks, in cohorts that are drawn by lot once in a run
            and take turns; 0: all. Not with `cohorts`, expansion or `held_items`, which count on
            all users in each round.
        decay: L2 coefficient of the item table at the aggregator.
        user_steps: steps of the user's part in a pass, see `algorithms.tasks.flat`.
        user_lr: their size.
        user_decay: L2 coefficient of the user's part.
        holders: of a row in the form `held_items`, the first round's survivors counted.
        blocks: into how many sums the rows of a large table are cut, in the form `secure_items`,
            or `matched_items`, which is then the only one.
        expand_after: rounds before graphs are expanded for the first time; 0: they never are. With
            it the form is `matched_items` or `matched_held_items`.
        expand_every: rounds from one expansion to the next; 0: there is one.
        popular: numbers of items by public popularity, the most popular first, for policies whose
            guard `match` leaves out the most popular; others follow in the catalogue's order.

    Raises:
        ValueError: an option is out of range, or the model is not of one user.
    """
    if epochs * user_steps < 1 or user_decay < 0.0 or user_lr <= 0.0:
        raise ValueError(
            "out of range; needed are epochs >= 1, user_steps >= 1, user_decay >= 0, user_lr > 0"
        )
    settings = (checked(task, "fed_per_gnn"), epochs * user_steps, user_lr, user_decay, blocks)
    if min(expand_after, expand_every) < 0 or (expand_every and not expand_after):
        raise ValueError("expand_after and expand_every are 0 or more, and the first comes first")
    if drawn and (cohorts > 1 or expand_after):
        raise ValueError("drawn cohorts go neither with `cohorts` nor with an expansion")
    user, server = User(*settings), Aggregator(User(*settings), decay, cohorts, holders)
    ways = forms(server)
    if drawn:
        ways = tuple(replace(way, drawn=drawn) for way in ways if way.holders == 1)
    if expand_after:
        user = expanded = ExpandedUser(*settings, tuple(popular))
        server = wide = Expanding(user, decay, cohorts, holders, expand_after, expand_every)
        ways = expanding_forms(wide, expanded)
    return Algorithm(
        name="fed_per_gnn",
        citation="Wu et al., A federated graph neural network framework for privacy-preserving "
        "personalization, Nature Communications 13, 2022",
        init=server.init,
        model=user.model,
        forms=ways,
        dims=server.dims,
        reduced=lambda rounds: _unexpanded(expand_after) if not 0 < expand_after < rounds else "",
    )


def _unexpanded(after: int) -> str:
    when = f"it comes after {after} rounds, when the run is over" if after else "expand_after is 0"
    return (
        "its model on each user's own ratings: no graph is expanded by neighbours "
        f"({when}; set the option expand_after below the rounds)"
    )


ALGORITHM = fed_per_gnn
