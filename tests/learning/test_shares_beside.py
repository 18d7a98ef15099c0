"""Where any of a study's sums has correlated noise, no sum's share follows from the named set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from hubbub.core.planning.mechanism import IndependentNoise
from hubbub.core.planning.query import SteppedQuery
from hubbub.core.planning.study_plan import plan_of, queries_of
from hubbub.core.study.study import Study


class Beside:
    """A query that has its own part of epsilon, and the noise of two steps in each."""

    epsilon = 0.1

    def __init__(self, query: SteppedQuery) -> None:
        self._query = query
        self.mechanism = replace(query.mechanism, noise=IndependentNoise(epoch=2))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)


def test_p25_beside_correlated_noise_no_share_follows_from_the_set_that_is_named() -> None:
    toml = """
    study.name = "both"
    parties = {silos = 5, colluders = 1, dropouts = 1}
    data = {source = "hubbub.datasets:heart", records = 735}
    model.kind = "logistic"
    training = {steps = 4, sample_rate = 0.1, optimizer = {name = "sgd", lr = 1.0}}
    privacy = {epsilon = 1.0, delta = 1e-5}
    """
    study = Study.parse(toml)
    main, beside = queries_of(study, 20)
    assert plan_of(study, main, beside).main.division.announced
    made = plan_of(study, main, [*beside, cast(SteppedQuery, Beside(main))])
    assert not any(one.division.announced for one in made.queries)
