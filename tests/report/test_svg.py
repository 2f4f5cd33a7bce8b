from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.report import figures
from stacksl.report.quality import CurvePoint


@given(st.integers(1, 10**12))
def test_a_few_round_steps_reach_the_last_label(most):
    step = figures.round_step(most)
    assert 4 * step >= most
    assert step == 1 or 4 * step < 10 * most
    assert str(step).rstrip("0") in ("1", "2", "5")


@pytest.mark.parametrize("name", ["usual", "hostile", "adapted"])
def test_the_figure_is_well_formed_and_inside_its_view_box(made, name):
    picture = ElementTree.fromstring(figures.accuracy_curve(made[name]().curve))
    _, _, width, height = (float(part) for part in picture.get("viewBox", "").split())
    assert picture.get("aria-label")
    for words in picture.iter("text"):
        assert -1 <= float(words.get("x", "nan")) <= width
        assert 0 <= float(words.get("y", "nan")) <= height


def test_the_line_and_the_band_go_through_their_points():
    points = (CurvePoint(0, 0.5, 0.4, 0.6), CurvePoint(50, 0.6, 0.5, 0.7))
    drawn = figures.accuracy_curve((*points, CurvePoint(100, 0.7, 0.6, 0.8)))
    assert '<path class="line" d="M46.0 142.5L236.0 99.0L426.0 55.5"/>' in drawn
    assert 'd="M46.0 99.0L236.0 55.5L426.0 12.0L426.0 99.0L236.0 142.5L46.0 186.0Z"' in drawn
    assert figures.accuracy_curve(points[:1]) == ""
