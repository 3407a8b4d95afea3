"""The published recipes still take the steps whose losses are stored."""

import pytest
from fingerprints import FINGERPRINTS, RECIPES, STEPS, first_difference, losses_of
from studies import RESULTS, read_study

from aiayn.runs.run_folder import read_json


def test_every_published_recipe_has_a_fingerprint():
    stored = read_json(FINGERPRINTS)
    assert {
        recipe: len(fingerprint["losses"]) for recipe, fingerprint in stored.items()
    } == dict.fromkeys(RECIPES, STEPS)


@pytest.mark.parametrize("recipe", ["quickstart", "captions", "table3_quarter"])
def test_what_trained_a_published_row_takes_the_steps_of_the_fingerprint(recipe):
    fingerprint = read_json(FINGERPRINTS)[recipe]
    same_steps = [fingerprint["commit"], *fingerprint.get("same_steps_at", [])]
    for record in read_study(RESULTS / f"{recipe}.jsonl").values():
        assert record["origin"]["commit"].startswith(tuple(commit[:7] for commit in same_steps))


def test_a_loss_that_changes_is_found_and_one_that_was_rounded_elsewhere_is_not():
    assert first_difference([5.0, 4.0], [5.000001, 4.000001]) is None
    assert first_difference([5.0, 4.0], [5.0, 4.00002]) == 2
    assert first_difference([5.0, 4.0], [5.0]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_first_losses_of_a_published_recipe_reproduce(recipe, tmp_path):
    stored = read_json(FINGERPRINTS)[recipe]["losses"]
    assert first_difference(stored, losses_of(recipe, tmp_path)) is None
