"""Parts of a configuration: which client holds what, what is scored, and faults to play."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from protocols.strict import Strict
from secure_fgl.run.naming import client_names, misnamed

__all__ = ["EvaluationConfig", "FaultsConfig", "PartitionConfig"]

_DROP = r"[1-9]\d*@[1-9]\d*(:(after_upload|before_shares))?"
_DROPS = re.compile(rf"({_DROP}(,{_DROP})*)?")


class PartitionConfig(Strict):
    """Which client holds what.

    Attributes:
        name: see ``secure-fgl list partitions``.
        clients: how many there are.
        names: what they are called, in place of `clients`; without it ``client-1``, ``client-2``, …
            Of own data, the name of a client is that of its folder.
        options: further settings of this partition.
    """

    name: str = "louvain_balanced"
    clients: int = Field(default=5, ge=1, le=100_000)
    names: tuple[str, ...] = Field(default=(), max_length=100_000)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _names_are_counted(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(names := values.get("names"), list | tuple):
            return values | {"clients": values.get("clients", len(names))} if names else values
        return values

    @field_validator("names")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := misnamed(names):
            raise ValueError(wrong)
        return names

    @model_validator(mode="after")
    def _are_as_many(self) -> PartitionConfig:
        if self.names and len(self.names) != self.clients:
            raise ValueError(
                f"there are {len(self.names)} names, and clients says {self.clients}; leave "
                "clients out, since names count themselves"
            )
        return self

    @property
    def called(self) -> tuple[str, ...]:
        """The clients' names, in the order of plans: sorted."""
        return tuple(sorted(self.names)) or client_names(self.clients)


Reference = Literal[
    "local",
    "propagation",
    "local_propagation",
    "logistic",
    "boosted",
    "centralised",
    "whole_graph",
    "mean",
    "pmf",
]


class EvaluationConfig(Strict):
    """Which model is scored, and which references the simulator finds outside the federation.

    Where a policy lets no counts leave, and with ``kept``, each client keeps its own best model;
    with ``told`` clients tell scores under their own noise (`own_noise` of NOISED), each charged.

    Of nodes, each site by itself, and nothing is sent: ``local``; ``propagation``, the site's
    labels run along its own edges; ``local_propagation``, its own model's predictions run along
    them; ``logistic`` and ``boosted``, scikit-learn's logistic regression and boosted trees without
    edges (extra ``evaluate``; without it ``run`` says that they were not computed). Settings are
    chosen on the site's validation nodes (ADR 0096).
    ``whole_graph`` is how the clients' models do with all edges between clients restored, over all
    test nodes, on average (ADR 0048).
    ``mean`` predicts the mean of all training ratings, ``pmf`` is biased matrix factorisation on
    them; only rating tasks have these, and their headline is the RMSE where a client is one user.

    Attributes:
        at: the model that a client scores: ``downloaded`` (as it came), ``trained`` (after its own
            training in that round), ``kept`` (the best that it had).
        told: whether clients tell scores under their own noise.
        references: ``local`` (each client alone), ``propagation``, ``local_propagation``,
            ``logistic``, ``boosted``, ``centralised`` (all data in one place), ``whole_graph``,
            ``mean``, ``pmf``.
    """

    at: Literal["downloaded", "trained", "kept"] = "downloaded"
    told: bool = False
    references: tuple[Reference, ...] = ()


class FaultsConfig(Strict):
    """Faults that the simulator plays, to see that a run survives them.

    Attributes:
        drop: which client vanishes when: ``2@3`` is client 2 in round 3, before it uploads;
            ``2@3:after_upload`` or ``2@3:before_shares`` later in that round; several with commas.
            It is back in the next round.
    """

    drop: str = ""

    @field_validator("drop")
    @classmethod
    def _is_a_list_of_drops(cls, text: str) -> str:
        if not _DROPS.fullmatch(text):
            raise ValueError(
                "write CLIENT@ROUND, CLIENT@ROUND:after_upload or CLIENT@ROUND:before_shares; "
                "several with commas"
            )
        return text
