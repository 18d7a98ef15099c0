"""The gallery's charts are drawn, and the page shows each of them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

gallery = pytest.importorskip("experiments.gallery")
PAGE = (gallery.ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")


def test_the_page_shows_every_picture_that_is_kept() -> None:
    shown = set(re.findall(r"pictures/gallery/([\w.]+)", PAGE))
    photographs = {f"{name}.png" for name in gallery.PHOTOGRAPHS}
    assert shown == photographs | {f"{name}.svg" for name in gallery.CHARTS}
    assert shown == {path.name for path in gallery.PICTURES.iterdir()}


@pytest.mark.slow
def test_all_charts_are_drawn_anew(tmp_path: Path) -> None:
    gallery.main(["--out", str(tmp_path)])
    drawn = {
        path.stem: ET.parse(path).getroot()  # noqa: S314 - our own
        for path in tmp_path.iterdir()
    }
    assert set(drawn) == set(gallery.CHARTS)
    assert all(len(list(root.iter())) > 10 for root in drawn.values())
