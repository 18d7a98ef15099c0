"""Six cohorts as hospitals export them, made here: what each is called says what it tries.

Every cohort is five silos' files, in which the outcome depends on a few columns, and in each of
which something leads a hasty reader to a wrong study. `python -m drafting.cohorts DIR` writes them.
"""

from __future__ import annotations

import csv
import io
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

SILOS = ("north", "south", "east", "west", "centre")

Cells = dict[str, object]


def _person(draw: random.Random) -> Cells:
    """Age, sex and what was measured, with gaps."""
    age = draw.randint(25, 92)
    crp = math.exp(draw.gauss(2.4, 1.1))
    return {
        "age": age,
        "sex": draw.choice(("F", "M", "f", "m ") if draw.random() < 0.1 else ("F", "M")),
        "Größe cm": round(draw.gauss(170, 9)),
        "CRP": "" if draw.random() < 0.08 else f"{crp:.1f}",
        "smoker": draw.choice(("never", "never", "former", "current")),
        "_risk": (age - 60) / 14 + 0.6 * (math.log(crp) - 2.4),
    }


def _happens(draw: random.Random, chance: float, risk: float) -> bool:
    return draw.random() < 1 / (1 + math.exp(-(math.log(chance / (1 - chance)) + risk)))


def visits(draw: random.Random, rows: int) -> list[Cells]:
    """Several rows of a patient, under a number that no column's name calls a patient's."""
    found: list[Cells] = []
    number = draw.randint(100_000, 900_000)
    while len(found) < rows:
        number += draw.randint(1, 40)
        person = _person(draw)
        for visit in range(draw.choice((1, 1, 2, 3, 5))):
            seen = {"patient_id": f"P{number}", "visit": visit + 1, **person}
            risk = float(str(person["_risk"]))
            found.append({**seen, "readmitted": "yes" if _happens(draw, 0.3, risk) else "no"})
    return found


def survival(draw: random.Random, rows: int) -> list[Cells]:
    """A follow-up time and a status; who was lost has a status, too."""
    found: list[Cells] = []
    for _ in range(rows):
        person = _person(draw)
        dies = draw.expovariate(1) * 900 * math.exp(-0.8 * float(str(person["_risk"])))
        seen = draw.uniform(60, 1400)
        found.append(
            {**person, "futime": max(1, round(min(dies, seen))), "status": int(dies <= seen)}
        )
    return found


def counts(draw: random.Random, rows: int) -> list[Cells]:
    """Exacerbations from 0 to 14, and why the first one happened where there was one."""
    found: list[Cells] = []
    for _ in range(rows):
        person = _person(draw)
        rate = 1.1 * math.exp(0.5 * float(str(person["_risk"]))) * draw.gammavariate(2, 0.5)
        number = min(14, sum(draw.random() < rate / 60 for _ in range(60)))
        why = draw.choice(("cold", "infection", "unknown")) if number else ""
        found.append({**person, "exacerbations": number, "first_reason": why})
    return found


def amounts(draw: random.Random, rows: int) -> list[Cells]:
    """Costs with a long tail, in the decimal comma of two hospitals."""
    found: list[Cells] = []
    for _ in range(rows):
        person = _person(draw)
        cost = math.exp(8.2 + 0.45 * float(str(person["_risk"])) + draw.gauss(0, 0.7))
        found.append({**person, "ward": draw.choice("ABCDE"), "total_cost": f"{cost:.2f}"})
    return found


def rare(draw: random.Random, rows: int) -> list[Cells]:
    """Deaths in some two of a hundred, and columns that are filled only for who died."""
    found: list[Cells] = []
    for k in range(rows):
        person = _person(draw)
        died = _happens(draw, 0.012, 0.9 * float(str(person["_risk"])))
        told = {
            "died_30d": int(died),
            "date_of_death": f"2021-0{1 + k % 9}-1{k % 9}" if died else "",
            "cause_of_death": draw.choice(("cardiac", "sepsis", "other")) if died else "",
            "autopsy": ("yes" if draw.random() < 0.4 else "") if died else "",
        }
        found.append({**person, **told})
    return found


def wide(draw: random.Random, rows: int) -> list[Cells]:
    """Eighty diagnoses, forty laboratory values, and a disease that some of them foretell."""
    codes = [f"{'ABCEIJKN'[k % 8]}{10 + k}" for k in range(80)]
    weights = [1 / (k + 1) for k in range(80)]
    found: list[Cells] = []
    for _ in range(rows):
        person = _person(draw)
        code = draw.choices(codes, weights)[0]
        risk = float(str(person["_risk"])) + 1.2 * ((codes.index(code) % 5) == 0)
        labs = {f"lab_{k:02d}": f"{draw.gauss(10 * k, 2 + k):.1f}" for k in range(40)}
        ill = "positive" if _happens(draw, 0.25, risk) else "negative"
        found.append({**person, "main_code": code, **labs, "disease": ill})
    return found


COHORTS: dict[str, Callable[[random.Random, int], list[Cells]]] = {
    one.__name__: one for one in (visits, survival, counts, amounts, rare, wide)
}


def lay(name: str, folder: Path, rows: int = 500) -> list[Path]:
    """Write a cohort's files, of so many rows each, and return where they are."""
    paths = []
    for seed, silo in enumerate(SILOS):
        made = COHORTS[name](random.Random(f"{name} {seed}"), rows)
        names = [one for one in made[0] if not one.startswith("_")]
        comma = name == "amounts" and seed < 2
        out = io.StringIO()
        writer = csv.DictWriter(out, names, delimiter=";" if comma else ",", extrasaction="ignore")
        writer.writeheader()
        for row in made:
            plain = {k: str(v).replace(".", ",") if comma else v for k, v in row.items()}
            writer.writerow(plain)
        paths.append(folder / f"{silo}.csv")
        paths[-1].write_text(out.getvalue(), encoding="utf-8")
    return paths


if __name__ == "__main__":
    for name in COHORTS:
        home = Path(sys.argv[1]) / name
        home.mkdir(parents=True, exist_ok=True)
        lay(name, home)
