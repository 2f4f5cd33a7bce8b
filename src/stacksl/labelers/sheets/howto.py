"""The instructions beside the sheets."""

from __future__ import annotations

from pathlib import Path

from stacksl.labelers.sheets.writing import write_file

HOWTO = """\
How to answer
=============

Open the file in a spreadsheet program. Each row is one question. Choose an answer from the list
in the column "answer" (.xlsx), or type it; leave the columns "key", "prompt" and "options" as they
are. You may answer some rows now and the rest later, filter, sort or delete whole rows, and send
the file back as often as you like.

What to write into "answer"
  B               the letter before the option
  2               its number, where the first option is 1 (the letter B is number 2)
  the text        of the option, as it stands
  none            none of the options is right
  none: the text  none is right, and this would be
  ambiguous or ?  more than one is right, or it cannot be decided
  broken          the question is damaged or makes no sense

Leave the answer empty where you do not know yet. Remarks go into the column "note".

Lists of more than 26 options, and options that are single letters, have numbers instead of
letters. Where the cell names a sheet or a file of classes, the numbers and names are there.

Where an option's whole text is a letter, a number or a word such as none, that text means that
option. To mean the letter write B) with the bracket, to mean the word write [none].

Saving
  Save the file in the format in which you got it (LibreOffice: "Keep Current Format"). .xlsx and
  CSV are both read, whichever you were given; .ods and .xls are not. CSV may have commas,
  semicolons or tabs between the cells.

CSV files only: if all columns are in one when you open the file, import it instead (in Excel Data,
From Text/CSV; choose UTF-8 and the comma). An apostrophe (') before a text that begins with
= + - or @, or looks like a number or a date, keeps the spreadsheet from changing it. It is not
part of the text.
"""


def write_howto(folder: Path, *, mode: int = 0o600) -> Path:
    """Write `HOWTO.txt` into the folder of the sheets, and return its path.

    Raises:
        DataError: it cannot be written.
    """
    path = folder / "HOWTO.txt"
    write_file(path, "\ufeff" + HOWTO.replace("\n", "\r\n"), mode, replace=True)
    return path
