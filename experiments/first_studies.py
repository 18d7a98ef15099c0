"""What a study that `hubbub init` has drafted reaches, beside the same model without privacy.

    python -m experiments.first_studies FOLDER... [--runs 4]

Each folder has a `study.toml` and its files, as `init --tidy tidy` leaves them. Their records must
be public. A fifth scores; clip, rate and noise are the study's at epsilon 1 and 4, the part for its
validation taken off. Of patients the first record of each is taken. By
batched rehearsals that agree with `fit` (linear_rehearsals.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.command import Shown, fill, options_of, parser_of
from experiments.defaults import Cohort, telling
from experiments.linear_heads import Number, head_of
from experiments.linear_rehearsals import LinearModels, RehearsalLaw, Settings, rehearsed
from experiments.results import Table
from hubbub.core.planning.study_plan import plan
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.learning.study.training import learning_of, usual_for

Array = NDArray[Any]
KEY = ("cohort", "epsilon")
SCORES = ("score", "score_no_privacy", "lost")
COLUMNS = (*KEY, "kind", "records", "features", "draws", "clip_norm", "lr", *SCORES)
EPSILONS = (1.0, 4.0)
FREE = Settings(clip_norm=1e9, steps=600, lr=0.1)


@dataclass(frozen=True)
class FirstStudy:
    """A study, and one record of each of its units."""

    study: Study
    inputs: Array
    targets: Array


def first_study(folder: Path) -> FirstStudy:
    """A drafted study with its records."""
    with chdir(folder):
        study = Study.load("study.toml")
        silos = [silo_records.records(study, name, folder=Path()) for name in study.parties.names]
    inputs, targets = [], []
    for records in silos:
        places = slice(None)
        if records.patients is not None:
            _, places = np.unique(records.patients, return_index=True)
        inputs.append(records.inputs[places].astype(np.float64))
        targets.append(records.targets[places])
    return FirstStudy(study, np.concatenate(inputs), np.concatenate(targets))


def at(study: Study, epsilon: float) -> Study:
    """The study at another epsilon, all of its parts in proportion."""
    part = epsilon / study.privacy.epsilon
    privacy = replace(study.privacy, epsilon=epsilon, cap=None)
    validation = study.validation
    if validation is not None:
        validation = replace(validation, epsilon=validation.epsilon * part)
    return replace(study, toml="", privacy=privacy, validation=validation)


def measured(folder: Path, epsilon: float, draws: int, shown: Shown) -> dict[str, object]:
    """A row: means over draws."""
    first = first_study(folder)
    study = at(first.study, epsilon)
    usual, made = usual_for(study), plan(study, dimension=1)
    law = RehearsalLaw(
        noise_multiplier=made.total_noise_multiplier,
        sample_rate=usual.sample_rate,
        divisor=made.mechanism.divisor,
    )
    own = Settings(clip_norm=usual.clip_norm, steps=usual.steps, lr=usual.lr)
    scores = []
    for seed in range(draws):
        scores.append((drawn(first, own, law, seed), drawn(first, FREE, None, seed)))
        shown((seed + 1) / draws)
    private, without = np.mean(scores, axis=0).tolist()
    return {
        "kind": type(head_of(study)).__name__,
        "records": len(first.inputs),
        "features": first.inputs.shape[1],
        "draws": draws,
        "clip_norm": usual.clip_norm,
        "lr": usual.lr,
        "score": private,
        "score_no_privacy": without,
        "lost": without - private,
    }


def drawn(first: FirstStudy, settings: Settings, law: RehearsalLaw | None, seed: int) -> float:
    """The score of one draw on the fifth that did not train; without a law there is no noise."""
    head = head_of(first.study)
    order = np.random.default_rng(seed).permutation(len(first.inputs))
    test, train = np.split(order, [len(order) // 5])
    free = RehearsalLaw(noise_multiplier=0.0, sample_rate=0.2, divisor=0.2 * len(train))
    known, random = first.targets[train], np.random.default_rng([1, seed])
    begun = learning_of(first.study)[0].intercept
    models = rehearsed(
        head, first.inputs[train], known, [settings], law or free, random, intercept=begun
    )
    return _score(Cohort(head, first.inputs, first.targets, 0.0), models, test, known)


def _score(cohort: Cohort, models: LinearModels, test: Array, known: Array) -> float:
    """As `defaults.telling` has it; of amounts R2 of the numbers as they are."""
    head = cohort.head
    if not isinstance(head, Number) or head.outcome.is_log:
        return telling(cohort, models, 0, test, known)
    low, high = head.outcome.low, head.outcome.high
    flat = np.column_stack([cohort.inputs[test], np.ones(len(test))])
    foretold = (models.outputs(flat)[:, 0, 0] * (high - low) + low + high) / 2
    off, spread = foretold - cohort.targets[test], known.mean() - cohort.targets[test]
    return float(1 - (off**2).mean() / (spread**2).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("folders", nargs="*", help="each with a drafted study and its files")
    options = options_of(parser, arguments)
    folders = {Path(folder).name: Path(folder) for folder in options.named.folders}
    keys: list[dict[str, Any]] = [
        {"cohort": name, "epsilon": epsilon} for name in folders for epsilon in EPSILONS
    ]
    table = Table(path=options.out / "first_studies.csv", key=KEY, columns=COLUMNS)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        key = keys[number]
        return measured(folders[key["cohort"]], key["epsilon"], options.runs, shown)

    fill(table, keys, measure, module="experiments.first_studies", arguments=arguments)


if __name__ == "__main__":
    main()
