"""The audit and the answers, as the page and the card tell them."""

from dataclasses import replace

import pytest

from stacksl.report import card, render
from stacksl.report.answers import audited, notes
from stacksl.report.facts import SettingRow
from stacksl.report.quality import SecondLook
from stacksl.report.sentences import bought, commands, outcome, uses

from .test_html import read


def words_of(facts):
    """The words of the page and of the card."""
    return read(render(facts)).text, card(facts).replace("\\", "")


def test_the_audited_accuracy_is_the_headline(made):
    facts = made["audited"]()
    assert facts.audit.accuracy == 80 / 95
    said = outcome(facts)
    assert "84.2% of the 95 clear ones among 100 audited items correctly" in said
    assert "; with unclear ones 80.0% at worst, 85.0% at best" in said
    page, model_card = words_of(facts)
    right = "80 of 95; not counted, since ambiguous, broken or unanswered: 5"
    for part in (said, right, "80.00% to 85.00%", "None of the candidates"):
        assert part in page, part
    assert said in model_card
    assert "Audited accuracy 84.2%" in page
    assert "Test accuracy" not in page


def test_an_audit_that_is_clear_has_no_worst_case(made):
    facts = made["audited_and_tested"]()
    said = outcome(facts)
    assert said.startswith(
        "Before it was trained on the audit's labels, too, the final model answered 88.0% of 100"
        " audited items that nobody had been asked about correctly (95% interval"
    )
    untouched = replace(facts, audit=replace(facts.audit, trained_on=0))
    assert "answers 88.0% of 100 audited items that nobody" in outcome(untouched)
    assert "none of which it was trained on" in outcome(untouched)
    assert "of 3,080 test items" in said
    page, _ = words_of(facts)
    assert "Worst to best" not in page
    assert "not counted" not in page
    assert "87.69%" in page
    assert "88.00%" in page


def test_where_there_is_neither_it_is_said_everywhere(made):
    facts = made["untested"]()
    assert "accuracy on new items is not known" in outcome(facts)
    for words in words_of(facts):
        assert "The model's accuracy on new items is not known" in words
    page, _ = words_of(facts)
    assert "Accuracy on new items not known" in page
    promise = replace(
        facts, settings=(*facts.settings, SettingRow("stop_when", "right=98%", "flag"))
    )
    refused = replace(promise, stopped="That 98.0% of the 800 rows are right cannot be promised.")
    assert outcome(refused) == refused.stopped, "the promise speaks of the table"


def test_an_audit_without_a_clear_answer_tells_nothing(made):
    facts = made["audited_in_vain"]()
    assert "is not known: none of 20 audited items has a clear answer" in outcome(facts)
    for words in words_of(facts):
        assert "is not known" in words


def test_an_audit_drawn_late_gives_an_interval_that_holds_whatever_the_bought_are(made):
    """A share w of the source was passed over: (1 - w) low to (1 - w) high + w."""
    facts = made["audited_and_tested"]()
    low, high = 100 * 0.9 * facts.audit.low, 100 * (0.9 * facts.audit.high + 0.1)
    (said,) = (note for note in notes(facts) if "bought already" in note)
    assert f"{low:.1f}% to {high:.1f}%" in said
    assert "10.0% of the items" in said
    assert "The earlier audit takes no part" not in said
    again = replace(facts, audit=replace(facts.audit, number=2))
    assert "The earlier audit takes no part" in "".join(notes(again))
    late = replace(facts.audit, reference=50, trained_on=0)
    assert "of items that nobody had been asked about correctly" in outcome(
        replace(facts, audit=late)
    )
    early = replace(late, passed_over=0.0)
    assert "of new items correctly" in outcome(replace(facts, audit=early))
    plain = audited(replace(late, reference=0), "bank")
    assert "88.0% of 100 audited items that nobody had been asked about correctly" in plain


@pytest.mark.parametrize(("still", "told"), [(1, 1), (0, 0)])
def test_the_accuracy_says_how_open_items_count(made, still: int, told: int):
    """1 of 68 rows is open and the others are right: that is .993, and no row is wrong."""
    second = SecondLook(68, 67, 14, 0, 0, 1, 1 - still, 0, still, nobody=still)
    audit = replace(made["audited"]().audit, n=68, unknown=0, accuracy=0.9926, second=second)
    said = audited(audit, "bank")
    assert said.startswith("The final model answers an estimated 99.3% of new items correctly")
    assert said.count("(it left 1 open: each counts half, or as others like it)") == told
    assert said.count("Nobody is left to ask about 1 row of the second look") == told
    assert said.count("`stacksl change bank --add-annotator NAME`") == told


def test_rates_agreement_costs_and_changes_are_told(made):
    page, _ = words_of(made["audited"]())
    for part in (
        "41 (4.1%)",
        "22 (2.2%)",
        "7 (0.7%)",
        "88.0% of 100 rows, Cohen's κ = 0.87",
        "600 answers, $1,500.00",
        "400 answers, $1,000.00",
        "1,000 labels, $2,500.00",
    ):
        assert part in page, part


def test_classes_never_seen_are_named(made):
    facts = made["audited"]()
    missing = facts.classes[0].name
    page, model_card = words_of(facts)
    assert f"Not learned: {missing} " in page
    assert "1 of them got no label to learn from." in page
    assert f"1 class got no label to learn from: {missing}." in model_card
    assert missing in card(facts, {}), "as it is handed over"


def test_what_the_model_can_label_is_a_share_or_the_number_that_would_tell(made):
    facts = made["audited"]()
    page, _ = words_of(facts)
    assert "90% right 41% (3,699 items), where its probability is at least 0.346512" in page
    assert "95% right cannot be estimated: no threshold passed the test on 95 audited items" in page
    few = replace(facts, own=replace(facts.own, measured=50, shares=facts.own.shares[1:]))
    assert "cannot be estimated from 50 audited items; needs at least 59" in words_of(few)[0]
    none = replace(facts, own=replace(facts.own, source="", measured=0))
    assert words_of(none)[0].count("it is estimated on an audit or a test file") == 1


def test_the_uses_of_labels_are_defined_and_add_up(made):
    facts = made["audited"]()
    numbers = [int(number.replace(",", "")) for number, _, _ in uses(facts)]
    assert sum(numbers) == facts.budget.spent == 1000
    page, _ = words_of(facts)
    assert "20 second answers : further answers to a row, which is learned once at most" in page
    assert page.index("random items that only measure and are not learned") < page.index("audited")


def test_rows_without_two_people_who_agree_are_counted_with_the_page_that_settles_them(made):
    facts = made["audited"]()
    several = replace(facts, asking=replace(facts.asking, disputed=12))
    step = "Correct 12 answers where no two people agree and the first stands"
    assert (step, "stacksl label bank") in commands(replace(several, run="bank"))
    assert step in words_of(several)[0]
    waits = replace(several, audit=replace(facts.audit, waits=True))
    assert "stacksl label bank" not in dict(commands(replace(waits, run="bank"))).values(), (
        "they are asked again"
    )
    none = replace(facts, asking=replace(facts.asking, disputed=0))
    assert "stacksl label bank" not in dict(commands(replace(none, run="bank"))).values()


@pytest.mark.parametrize(
    ("format", "kind"),
    [("xlsx:classes", "xlsx"), ("csv:classes", "csv"), ("lines:classes", "csv"), ("texts", "csv")],
)
def test_the_next_commands_write_files_of_the_kind_that_was_read(made, format: str, kind: str):
    facts = made["audited"]()
    said = dict(commands(replace(facts, run="bank", data=replace(facts.data, format=format))))
    assert said["Write the labeled table"] == f"stacksl export bank --table labels.{kind}"
    assert said["Label new items"] == f"stacksl predict bank new.{kind} --out labeled.{kind}"


def test_the_commands_are_those_of_the_command_line(made):
    from stacksl.cli.app import app

    facts = made["audited"]()
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    found = commands(facts)
    assert len(found) == 5, "a stream passes each item once, so a larger budget buys nothing"
    found = commands(replace(facts, method=replace(facts.method, mode="pool")))
    assert len(found) == 6
    for _, command in found:
        assert command.split()[:1] == ["stacksl"]
        assert command.split()[1] in names
        assert command.split()[2] == facts.run


def test_labels_of_the_audit_count_as_bought_and_not_as_learned(made):
    said = bought(made["audited"]())
    assert said == (
        "1,000 labels of 10,003 items were bought for $2,500.00: 880 to learn from; 20 for second"
        " answers; 100 for the audit, random items that only measure and are not learned."
    )
