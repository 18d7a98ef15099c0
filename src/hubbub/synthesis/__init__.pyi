from .synthesis_answers import (
    CAUTION as CAUTION,
    answers_of as answers_of,
)
from .design import (
    MOST_UNITS as MOST_UNITS,
    Design as Design,
)
from .choice import (
    without_room as without_room,
)
from .expectation import (
    Foreseen as Foreseen,
    foreseen as foreseen,
)
from .share_intervals import (
    Combined as Combined,
    Share as Share,
    combine as combine,
)
from .synthetic_keys import (
    AskedSynthesis as AskedSynthesis,
    synthesis_from as synthesis_from,
)
from .drawn_cells import (
    Table as Table,
)
from .measured_coefficients import (
    Coefficient as Coefficient,
    pair_coefficients as pair_coefficients,
)
from .release import (
    SyntheticData as SyntheticData,
    summary_of as summary_of,
)

__all__: list[str]
