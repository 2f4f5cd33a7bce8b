from xml.etree import ElementTree

from hypothesis import assume, given
from hypothesis import strategies as st

from stacksl.report import figures
from stacksl.report.figures import Frame, line, ticks

SIZES = {"x": (0.0, 10.0), "y": (0.0, 1.0)}


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9), st.booleans())
def test_ticks_are_few_even_and_inside(low, span, most, whole):
    high = low + span
    assume(span > 1e-9 * abs(low))
    marks = ticks(low, high, most, whole=whole)
    assert len(marks) <= most + 1
    slack = 1e-6 * max(span, 1e-6 * abs(low))
    assert all(low - slack <= mark <= high + slack for mark in marks)
    assert marks == sorted(set(marks))
    if whole:
        assert all(mark == int(mark) for mark in marks)


def test_the_frame_puts_the_corners_of_the_data_at_the_corners_of_the_box():
    frame = Frame(100, 50, **SIZES, left=10, top=5, right=20, bottom=15)
    assert (frame.across(0), frame.across(10)) == (10, 80)
    assert (frame.up(0), frame.up(1)) == (35, 5)
    assert frame.up(7) == 5, "a value beyond the range stays at the edge"


def test_a_line_goes_through_its_points():
    frame = Frame(100, 50, **SIZES, left=0, top=0, right=0, bottom=0)
    points = [(0, 0), (5, 1), (9, 0.5), (10, 0)]
    assert 'd="M0.0 50.0L50.0 0.0L90.0 25.0L100.0 50.0"' in line(frame, points, "one")
    assert line(frame, [], "one") == ""


def test_every_figure_is_well_formed_and_inside_its_view_box(made):
    for name in ("usual", "many_classes", "one_pair", "hostile"):
        facts = made[name]()
        drawn = (figures.accuracy_curve(facts), figures.calibration(facts.calibration))
        for picture in ElementTree.fromstring(f"<div>{''.join(drawn)}</div>"):
            _, _, width, height = (float(part) for part in picture.get("viewBox", "").split())
            assert picture.get("aria-label")
            for words in picture.iter("text"):
                assert -1 <= float(words.get("x", "nan")) <= width
                assert 0 <= float(words.get("y", "nan")) <= height


def test_nothing_known_is_nothing_drawn(made):
    assert figures.accuracy_curve(made["bare"]()) == ""
