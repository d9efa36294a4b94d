"""The page with the learners that ship, used by touch: it fits a phone and a screen, is accessible,
and its screenshot is in the guide (`ARML_SCREENSHOTS=docs/images pytest tests/app/test_looks.py`
makes it anew)."""

import os
from pathlib import Path

import cv2
import pytest

import chromium
from arml.app.server import served
from arml.datasets.starter import load_starter
from serving import serving

WIDTHS = (390, 1400)
CLASSES = ("car", "moon", "tree")


def draw(folder: Path) -> None:
    """Four icons of each class to learn from, of which one lies in the wrong folder; and two of
    each to predict."""
    icons = next(family for family in load_starter()[0] if family.name == "icons")
    for name in CLASSES:
        first = icons.first[icons.classes.index(name)]
        for i in range(6):
            path = folder / ("own" if i < 4 else "more") / name / f"{name}-{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            assert cv2.imwrite(str(path), icons.images[first + i][:, :, ::-1])
    (folder / "own" / "car" / "car-0.png").rename(folder / "own" / "moon" / "car-0.png")


def use_pictures(page, folder: Path) -> None:
    page.set_input_files("#folder", str(folder / "own"))
    page.set_input_files("#query-folder", str(folder / "more"))
    for button, said in (("#predict", "Answered in"), ("#check", "Checked in")):
        page.tap(button)
        page.wait_for_selector(f"#pictures-status >> text={said}")


def use_tables(page) -> None:
    page.tap("#tab-tables")
    page.tap("#example-table")
    page.wait_for_selector("#table-count >> text=15 examples, 9 to predict")
    for button, said in (("#table-predict", "Answered in"), ("#table-check", "Checked in")):
        page.tap(button)
        page.wait_for_selector(f"#tables-status >> text={said}")


@pytest.mark.site
def test_the_page_is_accessible_and_fits_its_window(tmp_path):
    draw(tmp_path)
    shots = Path(os.environ.get("ARML_SCREENSHOTS") or tmp_path)
    with serving(served()) as site, chromium.opened(site.address, width=390, touch=True) as page:
        page.wait_for_selector("body[data-ready]")
        use_pictures(page, tmp_path)
        assert "car-0.png: labelled moon, but predicted as car" in page.inner_text("#doubtful")
        assert page.locator("#predictions li").count() == 2 * len(CLASSES)
        use_tables(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for name in ("pictures", "tables"):
                page.tap(f"#tab-{name}")
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                chromium.check_accessible(page)
                file = shots / f"app-{name}-{width}.png"
                page.screenshot(path=str(file), full_page=True)
                assert file.stat().st_size > 1_000
