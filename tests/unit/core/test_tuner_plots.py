"""The pictures show the table, and need nothing from outside."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from tuning_questions import SMALL_AXES, a_draft, a_question

from specdeploy.core.tuner.answer import Said, tune
from specdeploy.core.tuner.plots import plots_of
from specdeploy.core.tuning import TuningReport


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


@pytest.fixture(scope="module")
def report() -> TuningReport:
    """A pair that is worth speculating with."""
    said = Said("given", assumptions=("a <b> & c",), warnings=("measure it",))
    return tune(a_question(a_draft()), said, axes=SMALL_AXES)


def test_every_row_is_a_dot_with_its_draft_length(report: TuningReport) -> None:
    root = parsed(plots_of(report)["tuning.svg"])
    dots = root.findall("{*}circle")
    assert len(dots) == len(report.by_concurrency)
    texts = [text.text for text in root.findall("{*}text")]
    for row in report.by_concurrency:
        assert f"k {row.draft_length}" in texts
        assert str(row.concurrency) in texts


def test_a_higher_speedup_stands_higher(report: TuningReport) -> None:
    dots = parsed(plots_of(report)["tuning.svg"]).findall("{*}circle")
    heights = [-float(dot.attrib["cy"]) for dot in dots]
    speedups = [row.speedup.value for row in report.by_concurrency]
    assert sorted(range(len(dots)), key=heights.__getitem__) == sorted(
        range(len(dots)), key=speedups.__getitem__
    )


def test_the_page_holds_the_picture_and_loads_nothing(report: TuningReport) -> None:
    page = plots_of(report)["tuning.html"]
    assert "<svg" in page
    assert "a &lt;b&gt; &amp; c" in page
    assert "<b>measure it</b>" in page
    links = re.findall(r"(?:src|href)=", page)
    assert links == []
    assert page.count("<tr>") == len(report.by_concurrency) + 1


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows_can_be_drawn(report: TuningReport, rows: int) -> None:
    short = report.evolve(by_concurrency=report.by_concurrency[:rows])
    svg = plots_of(short)["tuning.svg"]
    assert len(parsed(svg).findall("{*}circle")) == rows


def test_a_very_large_speedup_keeps_the_scale_readable(report: TuningReport) -> None:
    row = report.by_concurrency[0]
    tall = row.evolve(speedup=row.speedup.evolve(value=7.0, high=9.0))
    svg = plots_of(report.evolve(by_concurrency=[tall]))["tuning.svg"]
    assert ">9</text>" in svg
    assert ">0.5</text>" not in svg


def test_a_model_name_is_no_markup(report: TuningReport) -> None:
    odd = report.evolve(target="<script>")
    assert all("<script>" not in text for text in plots_of(odd).values())
