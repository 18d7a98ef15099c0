"""`hubbub fraction`: the paper's figure in numbers and as a picture."""

from __future__ import annotations

import argparse
import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import hubbub
from hubbub.cli import fraction
from hubbub.errors import StudyError, UserError
from hubbub.privacy.effective_sampling_rate import quantile_rate

SMALL = ("--records", "400", "--batch", "20", "--steps", "30", "--noise-multiplier", "3")
# docs/privacy.md P10: malicious records to the fractions at slack 1e-15, 1e-10 and 1e-5.
PAPER = {
    500: {
        500: (0.01010, 0.01010, 0.01010),
        5_000: (0.01096, 0.01080, 0.01058),
        12_500: (0.01187, 0.01155, 0.01107),
        25_000: (0.01348, 0.01280, 0.01188),
    },
    2500: {
        500: (0.05051, 0.05048, 0.05036),
        5_000: (0.05240, 0.05196, 0.05133),
        12_500: (0.05435, 0.05349, 0.05237),
        25_000: (0.05772, 0.05620, 0.05416),
    },
}


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    fraction.add_commands(parser.add_subparsers())
    options = parser.parse_args(["fraction", *arguments])
    return int(options.command(options))


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert run(*SMALL, *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("batch", PAPER)
def test_the_papers_fractions_are_those_of_the_statement(batch: int) -> None:
    for malicious, rates in PAPER[batch].items():
        for slack, rate in zip((1e-15, 1e-10, 1e-5), rates, strict=True):
            found = quantile_rate(50_000, batch, malicious, slack)
            assert round(found, 5) == rate


@pytest.mark.parametrize("malicious", [0, 1, 500, 25_000, 49_600, 49_999])
def test_without_slack_the_whole_batch_counts_as_honest(malicious: int) -> None:
    honest = 50_000 - malicious
    assert quantile_rate(50_000, 500, malicious, 0.0) == min(500, honest) / honest


def test_more_slack_and_fewer_malicious_records_never_raise_the_fraction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (panel,) = asked(capsys)["panels"]
    rates = [[point["rate"] for point in curve["points"]] for curve in panel["curves"]]
    assert [curve["slack"] for curve in panel["curves"]] == [0, 1e-15, 1e-10, 1e-5]
    for less, more in pairwise(rates):
        assert all(a >= b for a, b in zip(less, more, strict=True))
    assert all(a <= b for a, b in pairwise(rates[0]))


def test_the_mixtures_fraction_costs_what_the_mixture_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = asked(capsys)
    for at in content["panels"][0]["mixture"]:
        exact = hubbub.malicious_epsilon(
            n=400, batch=20, malicious=at["malicious"], noise_multiplier=3, steps=30, delta=1e-5
        )
        assert exact.upper - 1e-4 <= at["epsilon"] <= exact.upper * 1.001
        alone = hubbub.epsilon(
            noise_multiplier=3,
            sample_rate=at["rate"],
            steps=30,
            delta=1e-5,
            relation="substitute",
            sampling="without-replacement",
        )
        assert alone.upper == pytest.approx(at["epsilon"], rel=2e-4)
    rates = [at["rate"] for at in content["panels"][0]["mixture"]]
    assert rates == sorted(rates)
    slack = content["panels"][0]["curves"][-1]["points"][-1]["rate"]
    assert 0.05 == rates[0] < rates[-1] < slack  # never above the paper's way, at any slack


def test_the_picture_shows_every_curve_and_loads_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fraction.svg"
    assert run(*SMALL, "--batch", "20", "40", "--out", str(path)) == 0
    said = capsys.readouterr().out
    assert str(path) in said
    assert "batch 40 of 400 records" in said
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - made here
    lines = root.findall("{*}polyline")
    assert len(lines) == 2 * (4 + 1)
    assert not re.search(r"href|url\(|<script", path.read_text(encoding="utf-8"))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for line in lines:
        points = [tuple(map(float, one.split(","))) for one in line.attrib["points"].split()]
        assert all(0 < x < width and 0 < y < height for x, y in points)
        assert points == sorted(points)


BAD = [
    (("--records", "1"), StudyError, "records"),
    (("--batch", "0"), StudyError, "batch"),
    (("--batch", "201"), StudyError, "batch"),
    (("--batch", *"12345"), UserError, "at most 4"),
    (("--slack", "1"), StudyError, "slack"),
    (("--slack", "-0.1"), StudyError, "slack"),
    (("--slack", "nan"), StudyError, "slack"),
    (("--delta", "0"), StudyError, "delta"),
    (("--noise-multiplier", "0.4", "--steps", "100000"), StudyError, "expected"),
    (("--out", "/nowhere/at/all.svg"), UserError, "can be written"),
]


@pytest.mark.parametrize(("arguments", "kind", "says"), BAD)
def test_bad_input_is_refused_in_one_sentence(
    arguments: tuple[str, ...], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        run(*SMALL, *arguments)
