from .asked_statistics import (
    AskedStatistics as AskedStatistics,
)
from .attested_roles import (
    PLATFORMS as PLATFORMS,
    SOFTWARE as SOFTWARE,
    Attestation as Attestation,
    AttestedRole as AttestedRole,
    role_from as role_from,
)
from .coefficients import (
    Coefficients as Coefficients,
)
from .data import (
    Data as Data,
    columns_of as columns_of,
)
from .datasets.cache_folder import (
    data_folder as data_folder,
)
from .import_path import (
    IN_MEMORY as IN_MEMORY,
    is_own as is_own,
)
from .manifest import (
    manifest_records as manifest_records,
)
from .model import (
    HUBER as HUBER,
    Frozen as Frozen,
    Model as Model,
)
from .model_kinds import (
    LINEAR_PROBE as LINEAR_PROBE,
    LORA as LORA,
    MODEL_KINDS as MODEL_KINDS,
    features_of as features_of,
    model_kind_of as model_kind_of,
)
from .parties import (
    Parties as Parties,
)
from .privacy import (
    Privacy as Privacy,
)
from .score_vector import (
    ScoreVector as ScoreVector,
)
from .sources import (
    attempted as attempted,
    named_object as named_object,
)
from .standardisation import (
    FeatureSums as FeatureSums,
    Standardisation as Standardisation,
    standardisation_from as standardisation_from,
)
from .study import (
    Study as Study,
)
from .study_keys import (
    json_schema as json_schema,
    pages as pages,
)
from .training import (
    Training as Training,
)
from .validation import (
    Validation as Validation,
)
