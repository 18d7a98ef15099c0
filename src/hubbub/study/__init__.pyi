from hubbub.study.asked_statistics import (
    AskedStatistics as AskedStatistics,
)
from hubbub.study.attested_roles import (
    PLATFORMS as PLATFORMS,
    SOFTWARE as SOFTWARE,
    Attestation as Attestation,
    AttestedRole as AttestedRole,
    role_from as role_from,
)
from hubbub.study.data import (
    Data as Data,
    columns_of as columns_of,
)
from hubbub.study.datasets.cache_folder import (
    data_folder as data_folder,
)
from hubbub.study.import_path import (
    IN_MEMORY as IN_MEMORY,
    is_own as is_own,
)
from hubbub.study.model import (
    HUBER as HUBER,
    LINEAR_PROBE as LINEAR_PROBE,
    LORA as LORA,
    Frozen as Frozen,
    Model as Model,
)
from hubbub.study.parties import (
    Parties as Parties,
)
from hubbub.study.privacy import (
    Privacy as Privacy,
)
from hubbub.study.sources import (
    attempted as attempted,
    named_object as named_object,
)
from hubbub.study.standardisation import (
    FeatureSums as FeatureSums,
    Standardisation as Standardisation,
    standardisation_from as standardisation_from,
)
from hubbub.study.study import (
    Study as Study,
)
from hubbub.study.study_keys import (
    json_schema as json_schema,
    pages as pages,
)
from hubbub.tabular import (
    KINDS as KINDS,
    CodedCells as CodedCells,
    Column as Column,
    Outcome as Outcome,
    Records as Records,
    UnitRows as UnitRows,
    unit_rows as unit_rows,
)
from hubbub.study.training import (
    Training as Training,
)
