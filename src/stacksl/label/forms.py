"""What a browser may send, and nothing else."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from stacksl.label.open_run import Skipped
from stacksl.labelers.sheets.cells import visible
from stacksl.labelers.sheets.rows import Reply
from stacksl.ledger.purchases import Skip


class Form(BaseModel):
    """The base of all forms: no unknown field, and no text of a field in an error."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Entry(Form):
    """The secret of a link."""

    secret: str = Field(max_length=200)


class Given(Form):
    """An answer; it is sent until there is a reply, and entered once."""

    key: str = Field(max_length=40)
    said: Literal["label", "none", "ambiguous", "broken"]
    position: int | None = Field(None, ge=0, le=10**6, strict=True)
    text: str | None = Field(None, max_length=2000)
    note: str | None = Field(None, max_length=4000)

    def reply(self) -> Reply:
        """The answer as a row of a sheet would give it."""
        text, note = _free(self.text if self.said == "none" else None), _free(self.note)
        return Reply(0, self.key, self.said, self.position, text, note)


class Passed(Form):
    """A row that is skipped."""

    key: str = Field(max_length=40)
    why: Skip
    note: str | None = Field(None, max_length=4000)

    def word(self) -> Skipped:
        """Why, and the note."""
        return Skipped(self.why, _free(self.note))


class Act(Form):
    """What the owner does; the fields beside `act` are those that it needs."""

    act: str = Field(max_length=20)
    name: str | None = Field(None, max_length=1000)
    value: str | None = Field(None, max_length=2000)
    agreed: bool = False


def _free(text: str | None) -> str | None:
    return None if text is None else visible(text).strip() or None
