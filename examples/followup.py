"""Writes made-up follow-ups of three clinics: `python examples/followup.py`.

Beside them it writes the study of docs/statistics.md: Table 1, survival, and a Cox model.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

CLINICS = {"north": 900, "south": 700, "west": 600}
HEADER = ("age", "sex", "treatment", "months", "died")
STUDY = """\
[study]
name = "followup"
transcript = "full"      # so that the answers can be made again from the parties' messages

[parties]
names = ["north", "south", "west"]
colluders = 1

[data]
files = "{name}.csv"
records = 2200           # public, about right is enough

[data.columns]           # bounds and categories from the protocol of the study, not from the files
age       = { low = 30, high = 90 }
sex       = { categories = ["F", "M"] }
treatment = { categories = ["usual", "new"] }
months    = { low = 0, high = 48 }
died      = { categories = ["no", "yes"] }     # the second one is the event

[statistics.baseline]
kind = "table"
columns = ["age", "sex"]
by = "treatment"

[statistics.survival]
kind = "survival"
time = "months"
event = "died"
by = "treatment"
bins = 12
horizon = 36
test = "log-rank"

[statistics.hazards]
kind = "cox"
time = "months"
event = "died"
bins = 12
horizon = 36
covariates = { treatment = "categories", age = [60, 75] }

[privacy]
epsilon = 2.0
delta = 1e-5
"""


def patient(draw: random.Random) -> tuple[object, ...]:
    """One made-up person: the old die earlier, and the new treatment helps."""
    age, sex, treatment = draw.randint(35, 88), draw.choice("FM"), draw.choice(("usual", "new"))
    hazard = 0.022 * 1.035 ** (age - 60) * (0.55 if treatment == "new" else 1.0)
    death, end = draw.expovariate(hazard), draw.uniform(12, 48)
    died = "yes" if death <= end else "no"
    shown: object = "" if draw.random() < 0.03 else age
    return shown, sex, treatment, round(min(death, end), 1), died


def write(folder: Path) -> None:
    """A CSV file for each clinic, the same every time, and the study."""
    draw = random.Random(6)  # noqa: S311 - made-up people need a seed, not a secret
    for name, count in CLINICS.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(HEADER)
            rows.writerows(patient(draw) for _ in range(count))
    (folder / "followup.toml").write_text(STUDY, encoding="utf-8")


if __name__ == "__main__":
    write(Path())
    print("written: " + ", ".join(f"{name}.csv" for name in CLINICS) + ", followup.toml")
