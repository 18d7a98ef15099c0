"""What a study asks of its silos, a file for each kind of query; and the plan of all of them.

A new kind is a file here with a `Query`, and the line of `study_queries` that finds it in a study.
"""

from hubbub.queries.coefficients import COEFFICIENT_SUMS, COEFFICIENTS, CoefficientsQuery
from hubbub.queries.evaluation_query import EVALUATION, EvaluationQuery
from hubbub.queries.kept_sums import SUMS, sums_in
from hubbub.queries.planned_answers import PlannedAnswer, check_expected, planned_answers
from hubbub.queries.standardising_query import (
    STANDARDISATION,
    STANDARDISED,
    StandardisingQuery,
    features_of,
)
from hubbub.queries.statistic_answers import (
    answers_of,
    answers_to_dict,
    expected_answers,
    planned_statistics,
)
from hubbub.queries.statistics_query import (
    ANSWERS,
    STATISTICS,
    StatisticsQuery,
    statistics_of,
)
from hubbub.queries.study_queries import (
    main_of,
    plan,
    queries_of,
    steps_of,
)
from hubbub.queries.sums_query import SumsQuery
from hubbub.queries.synthesis_query import (
    RECORDS,
    SYNTHESIS,
    SYNTHETIC,
    SYNTHETIC_MODEL,
    SYNTHETIC_SUMS,
    SynthesisQuery,
    records_text,
    synthesis_of,
)
from hubbub.queries.training_ask import training_of
from hubbub.queries.training_query import TRAINING, TrainingQuery
from hubbub.queries.validation import (
    VALIDATED,
    VALIDATION,
    VALIDATION_SUMS,
    ValidationQuery,
    foreseen_validation,
    held_back_share,
    planned_validation,
    sums_of,
    usual_bins,
    validation_of,
    whose_records,
    write_validation,
)
from hubbub.queries.validation import sums_in as validation_sums_in
from hubbub.queries.vector_query import VECTOR, VectorQuery

ANSWER_FILES = (ANSWERS, SYNTHETIC, COEFFICIENTS)  # of a run's folder, which its page reads
# Of a run's folder, of which the evidence has digests.
RELEASED_FILES = (
    *(SUMS, ANSWERS, SYNTHETIC_SUMS, SYNTHETIC, SYNTHETIC_MODEL, RECORDS),
    *(COEFFICIENT_SUMS, COEFFICIENTS),
)
