"""benchmarks/initialisation.py in miniature."""

import json

import initialisation
import torch
from applications import write_pairs

from aiayn.model.transformer import Transformer


def test_it_writes_the_losses_of_every_seed_and_how_alike_positions_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "text", 40, 0)

    small = ["--steps", "2", "--seeds", "0", "1", "--vocab-size", "280"]
    initialisation.main([str(tmp_path / "text"), *small, "--out", str(tmp_path / "out")])

    rows = json.loads((tmp_path / "out/initialisation.json").read_text())["rows"]
    assert [row["initialisation"] for row in rows] == list(initialisation.INITIALISATIONS)
    assert len({row["loss, seed 0"] for row in rows}) == 3, "the same order of steps, other weights"
    assert all(row["loss"] == (row["loss, seed 0"] + row["loss, seed 1"]) / 2 for row in rows)
    assert all(-1 < row["alike"] < 1 for row in rows)


def test_the_initialisations_differ_in_the_projections_that_their_names_say(tiny_config):
    drawn = {}
    for name, initialise in initialisation.INITIALISATIONS.items():
        torch.manual_seed(0)
        model = Transformer(tiny_config, 23)
        initialise(model)
        drawn[name] = {key: float(value.detach().std()) for key, value in model.named_parameters() if "w_" in key}
    plain, *others = drawn.values()
    expected = {("w_q", "w_k", "w_v"): 2**-0.5, ("w_o", "w_2"): (2 * tiny_config.n_layers) ** -0.5}
    for found, (names, factor) in zip(others, expected.items(), strict=True):
        for key in (key for key in plain if key.endswith("weight")):
            ratio = factor if key.split(".")[-2] in names else 1
            assert abs(found[key] / plain[key] / ratio - 1) < 0.25, key
