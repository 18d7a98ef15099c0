"""The study: everything public that the parties agree on, read from `study.toml` and checked.

A `Study` says what was asked for; what follows from it is the plan's business. A study that parses
is complete and free of contradictions: unknown keys, missing keys and values out of range are
refused with one sentence that names the key, the value, what was expected and what to do. This
package knows no records, no keys and no noise.

Each of `parties`, `data`, `model`, `training` and `privacy` holds one table of the file: its
settings and how they are read. They stand on `section` (one table, one sentence for each fault);
`contradictions`, `toml_text` and `study` stand on them.
"""

from hubbub.study.asked_statistics import NUMBER, AskedStatistics, Question
from hubbub.study.attested_roles import (
    PLATFORMS,
    SOFTWARE,
    Attestation,
    AttestedRole,
    role_from,
)
from hubbub.study.data import columns_of
from hubbub.study.datasets.cache_folder import data_folder
from hubbub.study.import_path import IN_MEMORY, is_own
from hubbub.study.model import HUBER, LINEAR_PROBE, LORA, NO_MODEL, Frozen, Model
from hubbub.study.privacy import Privacy
from hubbub.study.sources import attempted, named_object
from hubbub.study.standardisation import FeatureSums, Standardisation, standardisation_from
from hubbub.study.study import Study
from hubbub.study.tabular import (
    KINDS,
    CodedCells,
    Column,
    Outcome,
    Records,
    UnitRows,
    unit_rows,
)
from hubbub.study.training import Training, whole_sums
