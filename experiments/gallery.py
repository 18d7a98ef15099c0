"""The pictures of docs/gallery.md: what two runs and a browser draw.

`make gallery` trains the demo's four hospitals, asks the statistics of `examples/followup.py`, and
keeps the charts of both pages as files. `--browser chromium` photographs pages, too: a report, its
picture of who sees what, and a dossier. Noise is drawn anew each time, so no two galleries are
alike.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import runpy
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import hubbub
from hubbub.desk.cli.main import main as command
from hubbub.desk.report import charts, markup

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures" / "gallery"
NAMES = ("heart", "followup")
HEART = """\
[study]
name = "heart"

[parties]
names = ["cleveland", "hungary", "switzerland", "va-long-beach"]
colluders = 1

[data]
records = 735
source = "hubbub.datasets:heart"

[model]
kind = "logistic"

[training]
steps = 60
sample_rate = 0.2
optimizer = { name = "adam", lr = 0.1 }

[validation]
epsilon = 1.0

[privacy]
epsilon = 2.0
delta = 1e-5
"""
# A chart of a page, by how its description begins.
CHARTS = {
    "calibration": "Calibration:",
    "decisions": "Decision curve:",
    "spending": "Line chart: epsilon",
    "colluders": "Line chart of epsilon by number",
    "survival": "Survival:",
    "hazards": "Cox regression of",
}
# What a browser photographs: the size of its window.
PHOTOGRAPHS = {"report": (1100, 1120), "dossier": (820, 1150)}
_CHART = re.compile(
    r'<svg viewBox="0 0 (\d+) (\d+)" role="img" aria-label="([^"]*)".*?</svg>', re.DOTALL
)


def charts_of(page: str) -> dict[str, str]:
    """The charts of a report that the gallery shows, as files of their own."""
    found = {}
    for chart in _CHART.finditer(page):
        for name, begins in CHARTS.items():
            if chart[3].startswith(begins):
                found[name] = charts.alone(markup.Html(chart[0]), float(chart[2]))
    return found


def photograph(browser: str, page: Path, out: Path) -> None:
    """What a reader sees first of a page, by a browser without a screen."""
    width, height = PHOTOGRAPHS[out.stem]
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    shot = [f"--window-size={width},{height}", f"--screenshot={out}", page.resolve().as_uri()]
    subprocess.run([*words, *shot], check=True, capture_output=True)  # noqa: S603 - as named


def photographs(browser: str, report: Path, out: Path) -> None:
    """A report, and the dossier of the same run."""
    command(["dossier", str(report.parent)])
    for file in (report, report.with_name("dossier.html")):
        photograph(browser, file, out / f"{file.stem}.png")


def reports(folder: Path) -> list[Path]:
    """The pages of both runs, which are made in `folder`."""
    runpy.run_path(str(ROOT / "examples" / "followup.py"))["write"](folder)
    (folder / "heart.toml").write_text(HEART, encoding="utf-8")
    for name in NAMES:
        with contextlib.chdir(folder):
            hubbub.run(hubbub.Study.load(f"{name}.toml"), out=name).report()
    return [folder / name / "report.html" for name in NAMES]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make all pictures anew."""
    parser = argparse.ArgumentParser(description="the pictures of docs/gallery.md")
    parser.add_argument("--out", type=Path, default=PICTURES, help="folder of the pictures")
    parser.add_argument("--browser", help="a Chromium: photographs pages, too")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pages = reports(Path(folder))
        for page in reversed(pages):  # the first names a chart that both have
            for name, chart in charts_of(page.read_text(encoding="utf-8")).items():
                (options.out / f"{name}.svg").write_text(chart, encoding="utf-8")
        if options.browser:
            photographs(options.browser, pages[0], options.out)


if __name__ == "__main__":
    main()
