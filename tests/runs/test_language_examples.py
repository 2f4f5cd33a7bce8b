"""What a refit of a language model learns from a label: further options that are wrong."""

from stacksl.lm import Lesson
from stacksl.runs.loop.language_examples import with_negatives
from stacksl.types import Item


def lessons(*options: tuple[str, ...]) -> list[Lesson]:
    return [
        Lesson(Item(str(n), f"question {n}", names), 1, tuple(range(len(names))), (0.5, 0.2))
        for n, names in enumerate(options)
    ]


def test_negatives_are_options_of_the_other_labels() -> None:
    given = lessons(("a", "b"), ("c", "d"), ("b", "e"))
    for one, wider in zip(given, with_negatives(given, 2, seed=0), strict=True):
        own = one.item.candidates
        added = wider.item.candidates[len(own) :]
        assert wider.item.candidates[: len(own)] == own
        assert len(set(added)) == 2
        assert set(added) < {"a", "b", "c", "d", "e"} - set(own)
        assert (wider.label, wider.candidates) == (1, (0, 1, 2, 3))
        assert wider.reference == one.reference  # of the item's own options


def test_as_many_are_added_as_there_are() -> None:
    given = lessons(("a", "b"), ("b", "c"))
    assert [one.item.candidates for one in with_negatives(given, 9, seed=0)] == [
        ("a", "b", "c"), ("b", "c", "a"),
    ]  # fmt: skip
    assert with_negatives(given[:1], 4, seed=0) == given[:1]


def test_items_with_one_set_of_classes_have_no_others() -> None:
    given = lessons(("a", "b", "c"), ("a", "b", "c"))
    assert with_negatives(given, 4, seed=0) == given


def test_negatives_follow_from_the_labels_and_the_seed() -> None:
    given = lessons(*((f"{n}", f"{n}!") for n in range(40)))
    assert with_negatives(given, 4, seed=3) == with_negatives(given, 4, seed=3)
    assert with_negatives(given, 4, seed=3) != with_negatives(given, 4, seed=4)
