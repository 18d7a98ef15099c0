"""The table for a GPU, in its small form: it is filled, and notices a sum that is wrong."""

from __future__ import annotations

import json

import pytest
from benchmarks import gpu

from hubbub.learning import device_sums

ARGUMENTS = ["--device", "cpu", "--small", "--rows", "GRU", "--each", "0.01", "--precisions"]


@pytest.fixture(autouse=True)
def put_back(monkeypatch):
    monkeypatch.setattr(device_sums, "_PIECEWISE", device_sums._PIECEWISE)


def test_every_row_is_checked_before_it_is_timed(tmp_path, capsys):
    path = tmp_path / "table.json"
    assert gpu.main([*ARGUMENTS, "float32,bf16", "--json", str(path)]) == 0
    results = json.loads(path.read_text())["results"]
    assert [(one["precision"], one["method"]) for one in results] == [
        (precision, method) for precision in ("float32", "bf16") for method in ("plain", "hubbub")
    ]
    assert all(one["ms"] > 0 and "failed" not in one for one in results)
    assert [one["right"] for one in results[1::2]] == [True, True]
    assert results[1]["error"] < 1e-5 < results[3]["error"]
    assert "GRU" in capsys.readouterr().out


def test_a_sum_that_is_wrong_or_too_long_ends_with_an_error(monkeypatch, capsys):
    real = gpu.clipped_sum

    def longer(*given, **options):
        total = real(*given, **options)
        return total._replace(vector=total.vector * 1.0000021)

    monkeypatch.setattr(gpu, "clipped_sum", longer)
    assert gpu.main([*ARGUMENTS, "float32"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_what_there_is_no_time_for_is_said(capsys):
    assert gpu.main([*ARGUMENTS, "float32", "--seconds", "-1"]) == 0
    assert "2 left out" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in gpu.ROWS if row.name not in "ABCDL"])
def test_each_model_of_the_table_is_summed_right(row, capsys):
    assert (
        gpu.main(
            [
                *[
                    "--device",
                    "cpu",
                    "--small",
                    "--each",
                    "0.01",
                    "--precisions",
                    "float32",
                    "--rows",
                ],
                row,
            ]
        )
        == 0
    )
    assert "failed" not in capsys.readouterr().out
