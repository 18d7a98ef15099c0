"""Makes two hospitals' exports, of nobody, and the tables that `study.toml` asks for.

    python examples/exports/exports.py

North exports from REDCap (`redcap.csv`, raw codes, a repeating instrument), south from a FHIR
server (`Patient.ndjson`, `Observation.ndjson`, as Bulk Data gives them). Each makes tables of its
own export by SQL, `redcap.sql` and `fhir.sql`, in a DuckDB file. Here both have the same people, so
that one can see that they come to the same records.
"""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SITES = {"north": "redcap.sql", "south": "fhir.sql"}
REDCAP = (
    *("record_id", "redcap_repeat_instrument", "redcap_repeat_instance", "demo_sex", "demo_born"),
    *("race___1", "race___2", "outcome_died", "lab_date", "lab_hba1c_ifcc", "lab_glucose"),
)


@dataclass(frozen=True)
class Person:
    """Somebody made up, with days of laboratory values: HbA1c in %, glucose in mg/dL."""

    number: int
    sex: str
    born: str
    died: bool
    values: tuple[tuple[str, float, float], ...]


def people(count: int, seed: int = 4) -> list[Person]:
    """So many, the same every time."""
    draw = random.Random(seed)  # noqa: S311 - made-up people need a seed, not a secret
    return [_person(number, draw) for number in range(1, count + 1)]


def _person(number: int, draw: random.Random) -> Person:
    level = draw.gauss(7.2, 1.2)
    values = tuple(
        (f"2023-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}", percent, 28.7 * percent - 46.7)
        for percent in (draw.gauss(level, 0.3) for _ in range(draw.randint(1, 3)))
    )
    died = draw.gauss(level - 7.2, 1) > 1
    return Person(number, draw.choice("FM"), f"{draw.randint(1930, 1990)}-05-17", died, values)


def write_redcap(path: Path, everybody: list[Person]) -> None:
    """A flat export: a row for the record, and one for each instance of a repeating instrument."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, REDCAP, restval="")
        rows.writeheader()
        for one in everybody:
            sex, died = {"F": 1, "M": 2}[one.sex], int(one.died)
            own = {"record_id": one.number, "demo_sex": sex, "demo_born": one.born}
            rows.writerow(own | {"race___1": 1, "race___2": 0, "outcome_died": died})
            for instance, (day, percent, glucose) in enumerate(one.values, 1):
                rows.writerow(
                    {
                        "record_id": one.number,
                        "redcap_repeat_instrument": "labs",
                        "redcap_repeat_instance": instance,
                        "lab_date": day,
                        "lab_hba1c_ifcc": f"{(percent - 2.152) / 0.09148:.4f}",
                        "lab_glucose": f"{glucose:.4f}",
                    }
                )


def write_fhir(folder: Path, everybody: list[Person]) -> None:
    """Patients and observations, a resource a line."""
    patients = [
        {
            "resourceType": "Patient",
            "id": f"p{one.number}",
            "gender": {"F": "female", "M": "male"}[one.sex],
            "birthDate": one.born,
            "deceasedBoolean": one.died,
        }
        for one in everybody
    ]
    observations = [
        {
            "resourceType": "Observation",
            "subject": {"reference": f"Patient/p{one.number}"},
            "code": {"coding": [{"system": "http://loinc.org", "code": code}]},
            "effectiveDateTime": f"{day}T08:30:00Z",
            "valueQuantity": {"value": round(value, 4), "unit": unit},
        }
        for one in everybody
        for day, percent, glucose in one.values
        for code, value, unit in (
            ("4548-4", percent, "%"),
            ("14749-6", glucose / 18.0156, "mmol/L"),
        )
    ]
    for name, resources in (("Patient", patients), ("Observation", observations)):
        lines = "".join(json.dumps(one) + "\n" for one in resources)
        (folder / f"{name}.ndjson").write_text(lines, encoding="utf-8")


def make(count: int = 300) -> None:
    """Both exports, both databases and `sources.toml`, in the folder where one stands."""
    import duckdb

    everybody = people(count)
    write_redcap(Path("redcap.csv"), everybody)
    write_fhir(Path(), everybody)
    lines = []
    for name, statements in SITES.items():
        Path(f"{name}.duckdb").unlink(missing_ok=True)
        with duckdb.connect(f"{name}.duckdb") as opened:
            opened.execute((HERE / statements).read_text(encoding="utf-8"))
        lines += [f"[{name}]", f'url = "duckdb:///{name}.duckdb"']
    path = Path("sources.toml")
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make()
    print("made: redcap.csv, Patient.ndjson, Observation.ndjson, north.duckdb, south.duckdb")
