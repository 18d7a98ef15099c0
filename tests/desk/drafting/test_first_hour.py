"""From three messy files to a model and its report, by doing what is printed and nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from drafting.messy import (
    added,
    decimal_comma,
    missing_spellings,
    mixed_case,
    of_zero_and_one,
    records,
    swapped,
    text,
    thousands,
)
from hubbub.desk.cli.main import main

MOST = 3  # invocations


def lay_three() -> None:
    """Three hospitals' files, each messy in its own way, in the current folder."""
    north, south, west = (records(seed, 60) for seed in (1, 2, 3))
    decimal_comma(north)
    missing_spellings(north)
    mixed_case(south)
    added(south, "admitted", lambda k: f"{1 + k % 28:02d}/0{1 + k % 9}/2021", 2)
    thousands(south)
    of_zero_and_one(west)
    swapped(west)
    west[0] = [name.title() if name != "died" else name for name in west[0]]
    Path("North hospital.csv").write_bytes(
        text(north, ";").replace("never", "niét").encode("latin-1")
    )
    Path("south.csv").write_bytes(text(south).encode("utf-8-sig"))
    Path("west_2023.csv").write_bytes(text(west, end="\r\n").encode())


@pytest.mark.slow
def test_three_messy_files_become_a_model_by_what_is_printed_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lay_three()
    words = ["init", "North hospital.csv", "south.csv", "west_2023.csv"]
    for _ in range(MOST):
        capsys.readouterr()
        code = main(words)
        out = capsys.readouterr().out
        assert code == ("a run cannot read" in out)
        if words[0] == "run":
            break
        *_, last = out.splitlines()
        assert last.startswith("    hubbub ")
        words = shlex.split(last)[1:]
    assert words[0] == "run"
    (report,) = tmp_path.glob("runs/*/report.html")
    assert report.with_name("model.safetensors").is_file()
