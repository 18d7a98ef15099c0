from .adversary_words import (
    spoken as spoken,
)
from .answer_tables import (
    answer_lines as answer_lines,
    said_of as said_of,
    tables_of as tables_of,
)
from .comparison_table import (
    Arrangement as Arrangement,
    ArrangementTable as ArrangementTable,
    UNCHARGED_BASELINE as UNCHARGED_BASELINE,
    interval as interval,
)
from .markup import (
    tag as tag,
)
from .metric_words import (
    METRICS as METRICS,
    in_brief as in_brief,
    is_held_back as is_held_back,
    metrics_of as metrics_of,
    words_of as words_of,
)
from .trust_models import (
    called as called,
    promised_against as promised_against,
)
from .notebook_view import (
    shown_in_notebook as shown_in_notebook,
)
from .page import (
    render as render,
)
from .promise_words import (
    broken as broken,
    spent_words as spent_words,
)
from .scales import (
    bounds as bounds,
    linear as linear,
)
from .score_words import (
    SCORES_HEAD as SCORES_HEAD,
    in_a_sentence as in_a_sentence,
    score_rows as score_rows,
    what_next as what_next,
)
from .validation_words import (
    validation_name as validation_name,
    next_step as next_step,
    validation_lines as validation_lines,
)
from .several_runs import (
    ReportedRun as ReportedRun,
)
