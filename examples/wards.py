"""Writes made-up records of three wards, for the tutorial: `python examples/wards.py`."""

from __future__ import annotations

import csv
import random
from pathlib import Path

WARDS = {"north": 420, "south": 260, "west": 330}
HEADER = ("patient", "age", "sex", "systolic", "smoker", "outcome")


def patient(draw: random.Random) -> tuple[object, ...]:
    """One made-up person without a name: older, smoking people fall ill more often."""
    age, sex = draw.randint(30, 88), draw.choice("FM")
    pressure = round(draw.gauss(128 + age / 5, 15))
    smoker = draw.choice(("no", "no", "yes"))
    risk = (age - 60) / 50 + (pressure - 135) / 70 + (smoker == "yes") / 2
    ill = "yes" if draw.gauss(risk, 0.6) > 0.3 else "no"
    return age, sex, "" if draw.random() < 0.04 else pressure, smoker, ill


def write(folder: Path) -> None:
    """A CSV file for each ward, the same every time."""
    draw = random.Random(4)  # noqa: S311 - made-up people need a seed, not a secret
    for name, count in WARDS.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(HEADER)
            rows.writerows((f"{name[0]}{i:04}", *patient(draw)) for i in range(count))


if __name__ == "__main__":
    write(Path())
    print("written: " + ", ".join(f"{name}.csv" for name in WARDS))
