from dataclasses import replace

import pytest

from aiayn.errors import ConfigError
from aiayn.model.transformer import Transformer
from aiayn.training import start
from aiayn.training.start import check_size


def test_a_model_larger_than_main_memory_is_refused_before_it_is_built(monkeypatch, tiny_config):
    size = sum(
        weight.numel() * weight.element_size()
        for weight in Transformer(tiny_config, 37).parameters()
    )

    monkeypatch.setattr(start, "machine_memory", lambda: size)
    check_size(tiny_config, 37)

    monkeypatch.setattr(start, "machine_memory", lambda: size - 1)
    with pytest.raises(ConfigError) as error:
        check_size(tiny_config, 37)
    assert f"model.d_model={tiny_config.d_model}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("positions", "is_named"), [("learned", True), ("sinusoidal", False)])
def test_learned_positions_are_named_among_the_sizes(monkeypatch, tiny_config, positions, is_named):
    monkeypatch.setattr(start, "machine_memory", lambda: 0)
    with pytest.raises(ConfigError) as error:
        check_size(replace(tiny_config, positions=positions), 37)
    assert ("model.max_positions=" in str(error.value)) == is_named
