"""Every scorer in the registry keeps the contract, for pair features and for class heads."""

import pytest

from stacksl.core.scorers import SCORERS

from .scorer_laws import LAWS, SETTINGS


@pytest.mark.parametrize("name", sorted(SCORERS))
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("classes", [False, True], ids=["pairs", "classes"])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_scorer_keeps_the_law(law, name, classes, settings):
    law(name, classes, SETTINGS[settings])
