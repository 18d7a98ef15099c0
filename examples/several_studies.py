"""Two studies on the same records, and what they cost together."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import hubbub
from hubbub.desk.cli.main import main as command

STUDY = """
study.name = "{name}"
parties = {{ names = ["cleveland", "hungary", "switzerland", "va-long-beach"], colluders = 1 }}
data = {{ source = "hubbub.datasets:heart", records = 735 }}
model = {{ kind = "logistic", inputs = [26] }}
training = {{ steps = 10, sample_rate = 0.2 }}
privacy = {{ epsilon = 1.0, delta = 1e-5 }}
"""


def main(folder: Path) -> None:
    """Run both with the same ledgers, and show one hospital's."""
    ledgers = folder / "ledgers"
    for name in ("first", "second"):
        study = hubbub.Study.parse(STUDY.format(name=name))
        result = hubbub.run(study, out=folder / name, ledgers=ledgers)
        print(f"{name} study: epsilon {result.epsilon:.2f}")
    command(["ledger", "show", str(ledgers / "cleveland.sqlite")])


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        main(Path(scratch))
