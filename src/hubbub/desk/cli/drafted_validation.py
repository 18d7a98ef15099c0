"""The validation of a drafted study: only one that its own plan says can tell something."""

from __future__ import annotations

from dataclasses import replace

from hubbub.core.study.study import Study
from hubbub.desk.drafting.draft_files import draft_text
from hubbub.desk.drafting.study_draft import EPSILON, Draft
from hubbub.learning.queries.validation.layout import usual_bins, whose_records

TOO_FEW = (
    "no [validation] was drafted: with so few records at this epsilon, the noise would hide how "
    "good the model is; add silos, raise epsilon, or use public test records (data.test)"
)


def with_validation(made: Draft) -> Draft:
    """The draft with the least part of epsilon that tells how good a model is, if any does."""
    tried = made
    for share in made.validation_shares:
        tried = replace(made, validation_epsilon=share * EPSILON)
        # With the number of bins that tells most.
        tried = replace(tried, validation_bins=usual_bins(Study.parse(draft_text(tried))))
        if whose_records(Study.parse(draft_text(tried))).is_telling:
            return tried
    return tried if made.test_share else made
