from pathlib import Path

import pytest

from stacksl.data.files import stem


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("questions.csv", "questions"),
        ("pool.jsonl.gz", "pool"),
        ("banking77/train.csv", "banking77-train"),
        ("openbookqa/test.jsonl.gz", "openbookqa-test"),
    ],
)
def test_a_name_that_says_nothing_has_its_folder_before_it(path: str, name: str) -> None:
    assert stem(Path("/somewhere") / path) == name
