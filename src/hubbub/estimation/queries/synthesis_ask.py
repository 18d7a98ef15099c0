"""`[synthetic]`: synthetic records. What they need is loaded when they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.core.settings import Keys, Section, keys_of, schema
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import columns_of
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column

if TYPE_CHECKING:
    from hubbub.estimation.queries.synthesis_query import SynthesisQuery


class SynthesisAsk(Ask):
    """Synthetic records of columns as they are."""

    tables = ("synthetic",)
    rank = 2
    precedence = 1
    files = ("synthetic-sums.json", "synthetic.json", "synthetic-model.json", "synthetic.csv")
    copies = ("synthetic.parquet",)
    answers = "synthetic.json"

    def keys(self) -> dict[str, Keys]:
        from hubbub.estimation.synthesis.synthetic_keys import AskedSynthesis

        return {"synthetic": keys_of(AskedSynthesis)}

    def schemas(self) -> dict[str, Any]:
        return {key: schema(keys) | {"required": []} for key, keys in self.keys().items()}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        from hubbub.estimation.synthesis.synthetic_keys import synthesis_from

        table = top.table("synthetic")
        return {"synthetic": synthesis_from(table, around.columns, alone=around.is_main)}

    def canonical(self, study: Study) -> dict[str, Any]:
        return {"synthetic": study.synthetic.canonical()}

    def parts(self, study: Study) -> dict[str, float]:
        part = study.synthetic.epsilon
        return {"synthetic.epsilon": part} if part else {}

    def query(self, study: Study, dimension: int | None = None) -> SynthesisQuery:
        from hubbub.estimation.queries.synthesis_query import synthesis_of

        return synthesis_of(study)

    def cells(self, study: Study) -> Mapping[str, Column]:
        return columns_of(study.data)
