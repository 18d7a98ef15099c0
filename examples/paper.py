"""Writes made-up stays of five hospitals and a whole paper's study: `python examples/paper.py`.

Seven questions, a model and its validation, all at epsilon 2. Then:

    hubbub plan paper.toml
    hubbub run paper.toml --out runs/paper
    hubbub verify runs/paper
    hubbub table runs/paper --format html,docx,latex,csv --figures svg,pdf,png
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

HOSPITALS = {"abbey": 1500, "bridge": 1300, "castle": 1200, "dale": 1100, "elm": 900}
HEADER = ("age", "sex", "stage", "crp", "treatment", "months", "first", "failed", "readmitted")
STUDY = """\
[study]
name = "paper"
transcript = "full"

[parties]
names = ["abbey", "bridge", "castle", "dale", "elm"]
colluders = 1

[data]
files = "{name}.csv"
target = "readmitted"
positive = ["yes"]
negative = ["no"]
records = 6000           # public, about right is enough
capacity = 2000          # no hospital has more

[data.columns]           # bounds and categories from the protocol of the study, not from the files
age       = { low = 30, high = 90, default = 62 }   # for the model alone
sex       = { categories = ["F", "M"], complete = true }
stage     = { categories = ["I", "II", "III"], complete = true }
crp       = { low = 0, high = 100 }
treatment = { categories = ["usual", "new"], complete = true }
months    = { low = 0, high = 48, feature = false, complete = true }
first     = { categories = ["none", "relapse", "death"], feature = false, complete = true }
failed    = { categories = ["no", "yes"], feature = false, complete = true }   # either of both

[statistics]
epsilon = 1.0
holm = ["treatment_and_readmission", "survival"]

[statistics.baseline]
kind = "table"
columns = ["age", "sex", "stage", "crp"]
by = "treatment"

[statistics.crp]
kind = "quantiles"
column = "crp"
by = "treatment"
test = "wilcoxon"

[statistics.treatment_and_readmission]
kind = "crosstab"
rows = "treatment"
columns = "readmitted"
test = "chi-square"

[statistics.survival]
kind = "survival"
time = "months"
event = "failed"
by = "treatment"
horizon = 36
at = [12, 24]
test = "log-rank"

[statistics.causes]
kind = "incidence"
time = "months"
event = "first"
by = "treatment"
horizon = 36
test = "gray"

[statistics.hazards]
kind = "cox"
time = "months"
event = "failed"
horizon = 36
covariates = { treatment = "categories", stage = "categories", age = [60, 75] }

[statistics.rates]
kind = "rates"
time = "months"
event = "failed"
by = "stage"
per = 1200

[model]
kind = "logistic"

[training]
steps = 30
sampling = "full-batch"

[validation]
epsilon = 0.5
bins = 8
by = { sex = "categories", age = [60, 75] }
centres = true

[privacy]
epsilon = 2.0
delta = 1e-5
"""


def stay(draw: random.Random) -> tuple[object, ...]:
    """One made-up person: the old and late stages fare worse, and the new treatment helps."""
    age, sex, treatment = draw.randint(35, 88), draw.choice("FM"), draw.choice(("usual", "new"))
    late, helped = draw.choices((0, 1, 2), (5, 3, 2))[0], treatment == "new"
    crp = round(min(draw.lognormvariate(2.6 + 0.25 * late, 0.9), 200), 1)
    death = draw.expovariate(0.009 * 1.035 ** (age - 60) * 1.6**late * (0.6 if helped else 1.0))
    relapse, end = draw.expovariate(0.012 * 1.5**late), draw.uniform(12, 48)
    months = min(death, relapse, end)
    first = {end: "none", relapse: "relapse", death: "death"}[months]
    pull = -1.2 + 0.045 * (age - 60) + 0.6 * late - 0.5 * helped + 0.012 * (crp - 20)
    again = "yes" if draw.random() < 1 / (1 + math.exp(-pull)) else "no"
    shown: object = "" if draw.random() < 0.03 else age
    failed = "no" if first == "none" else "yes"
    stage = ("I", "II", "III")[late]
    return shown, sex, stage, crp, treatment, round(months, 1), first, failed, again


def write(folder: Path) -> None:
    """A CSV file for each hospital, the same every time, and the study."""
    draw = random.Random(8)  # noqa: S311 - made-up people need a seed, not a secret
    for name, count in HOSPITALS.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(HEADER)
            rows.writerows(stay(draw) for _ in range(count))
    (folder / "paper.toml").write_text(STUDY, encoding="utf-8")


if __name__ == "__main__":
    write(Path())
    print("written: " + ", ".join(f"{name}.csv" for name in HOSPITALS) + ", paper.toml")
