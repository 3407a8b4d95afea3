"""Figures 1 and 2 are drawn from what the model calls, in the order in which it calls it."""

import torch
from paper_claims import calls, draw_figure_1, draw_figure_2, scaling

from aiayn.model.transformer import Transformer


def test_the_boxes_of_figure_1_are_the_calls_of_the_model(tiny_config, tmp_path):
    model = Transformer(tiny_config, 23).eval()

    found = calls(model, torch.randint(4, 23, (2, 5)), torch.randint(4, 23, (2, 3)))

    layer = [(call.label, call.shape[1]) for call in found if call.path.startswith("decoder.0.")]
    assert layer == [
        ("masked multi-head attention", 3),
        ("add & norm", 3),
        ("multi-head attention", 3),
        ("add & norm", 3),
        ("feed forward", 3),
        ("add & norm", 3),
    ]
    labels = [call.label for call in found if call.path.startswith("encoder.0.")]
    assert labels == ["multi-head attention", "add & norm", "feed forward", "add & norm"]
    read = {call.path: call.inputs for call in found}
    top = f"encoder.{tiny_config.n_layers - 1}.norm_2"
    assert read["encoder.0.self_attention"] == ("encoder positions",)
    assert read["encoder.0.norm_1"] == ("encoder positions", "encoder.0.self_attention"), (
        "residual and sub-layer"
    )
    assert read["decoder.0.cross_attention"] == ("decoder.0.norm_1", top)
    assert read["decoder.0.norm_3"] == ("decoder.0.norm_2", "decoder.0.feed_forward")
    assert read["encoder.1.self_attention"] == ("encoder.0.norm_2",)
    draw_figure_1(found, tiny_config.n_layers, tmp_path / "1.png")
    draw_figure_2(model, tmp_path / "2.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("1.png", "2.png"))


def test_the_variance_of_products_is_d_k_and_the_slope_with_the_factor_does_not_depend_on_it():
    rows = list(scaling(4000, 16))

    assert all(abs(row["variance of q.k"] / row["d_k"] - 1) < 0.15 for row in rows)
    assert max(row["slope with the factor"] for row in rows) < 1.15 * min(
        row["slope with the factor"] for row in rows
    )
    assert rows[-1]["slope without"] < rows[-1]["slope with the factor"] / 10
