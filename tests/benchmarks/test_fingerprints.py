"""The published recipes still take the steps whose losses are stored."""

import pytest
from fingerprints import FINGERPRINTS, RECIPES, STEPS, first_difference, losses_of

from aiayn.runs.run_folder import read_json


def test_every_published_recipe_has_a_fingerprint():
    stored = read_json(FINGERPRINTS)
    assert {
        recipe: len(fingerprint["losses"]) for recipe, fingerprint in stored.items()
    } == dict.fromkeys(RECIPES, STEPS)


def test_a_loss_that_changes_is_found_and_one_that_was_rounded_elsewhere_is_not():
    assert first_difference([5.0, 4.0], [5.0001, 4.0001]) is None
    assert first_difference([5.0, 4.0], [5.0, 4.002]) == 2
    assert first_difference([5.0, 4.0], [5.0]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_first_losses_of_a_published_recipe_reproduce(recipe, tmp_path):
    stored = read_json(FINGERPRINTS)[recipe]["losses"]
    assert first_difference(stored, losses_of(recipe, tmp_path)) is None
