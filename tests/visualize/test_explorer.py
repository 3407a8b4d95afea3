"""The page holds the model's own weights, whole and safe, and needs nothing else."""

import base64
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import torch

from aiayn.errors import DataError
from aiayn.model.embedding import sinusoids
from aiayn.model.transformer import Transformer
from aiayn.reports.drawing import readable
from aiayn.visualize import explorer
from aiayn.visualize.explorer import explorer_page, position_tables, write_explorer


def text_of(page: str, name: str) -> str:
    """What a browser shows in the element of this id."""
    [text] = re.findall(rf'<\w+ id="{name}"[^>]*>(.*?)</', page, re.DOTALL)
    return unescape(text)


def data_of(page: str) -> dict:
    [text] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(text)


def values(text: str, *shape: int) -> torch.Tensor:
    return torch.tensor(list(base64.b64decode(text))).view(*shape) / 255


def test_the_page_holds_every_weight_to_half_of_a_255th(maps, tiny_config):
    page = explorer_page(maps, {}, tiny_config, "small")
    data = data_of(page)

    for name, weights in (
        ("encoder", maps.encoder_self),
        ("decoder", maps.decoder_self),
        ("cross", maps.cross),
    ):
        held = values(data["kinds"][name]["weights"], *weights.shape)
        torch.testing.assert_close(held, weights, atol=0.5 / 255 + 1e-6, rtol=0)
    assert data["kinds"]["cross"]["queries"] == maps.tgt_out
    assert data["kinds"]["decoder"]["keys"] == maps.tgt_in
    assert data["kinds"]["encoder"]["keys"] == data["kinds"]["encoder"]["queries"] == maps.src
    assert text_of(page, "score").startswith("−0.750 (log-probability −3.250, ")
    assert (text_of(page, "sentence"), text_of(page, "translation")) == (
        maps.sentence,
        "das alte <b>Haus",
    )


def test_the_page_holds_positions_and_how_alike_they_are(maps, tiny_config):
    table = torch.randn(7, 12) * 3

    [held] = data_of(explorer_page(maps, {"learned positions": table}, tiny_config, "small"))[
        "positions"
    ]

    step = 2 * held["largest"] / 255
    shown = (values(held["table"], 7, 12) * 2 - 1) * held["largest"]
    torch.testing.assert_close(shown, table, atol=step / 2 + 1e-5, rtol=0)
    cosines = torch.nn.functional.cosine_similarity(table[:, None], table[None], dim=-1)
    torch.testing.assert_close(
        values(held["similarities"], 7, 7) * 2 - 1, cosines, atol=1 / 255 + 1e-5, rtol=0
    )


def test_no_text_of_a_sentence_can_become_part_of_the_program(maps, tiny_config):
    page = explorer_page(maps, {}, tiny_config, "</script><script>alert(1)</script>")

    assert page.count("<script") == page.count("</script>") == 2
    assert "<!--" not in page
    assert text_of(page, "model").startswith(
        "</script><script>alert(1)</script> · 2 layers, 3 heads"
    )


def test_the_page_refers_to_nothing_outside_itself(maps, tiny_config):
    page = explorer_page(maps, {}, tiny_config, "small")

    addresses = set(re.findall(r"https?://[^\"']*", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, never fetched
    assert re.findall(r'\ssrc=|href="(?!data:)|@import|url\(|fetch\(|XMLHttp', page) == []
    assert "default-src 'none'" in page


def test_a_sentence_too_long_for_a_page_is_refused_before_anything_is_written(
    maps, tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(explorer, "MAX_WEIGHTS", 545)  # one less than there are

    with pytest.raises(DataError, match=r"6 subwords, its translation 5: 546 weights"):
        write_explorer(tmp_path / "new/index.html", maps, {}, tiny_config, "small")
    assert not (tmp_path / "new").exists()


def luminance(rgb: list[float]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: list[float], second: list[float]) -> float:
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_the_words_and_marks_of_tokens_are_legible_at_any_weight_in_both_themes(dark):
    css = Path(explorer.__file__).with_name("drawing.css").read_text("utf-8")
    light_theme, dark_theme = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    settings = light_theme + (dark_theme if dark else "")
    shares = re.findall(r"--most: (\d+)%", settings)
    rgb = {
        name: [int(part) / 255 for part in parts.split()]
        for name, parts in re.findall(r"--(\w+)-rgb: ([\d ]+);", settings)
    }
    hexes = re.findall(r"--text: #(\w{6})", settings)
    text = [part / 255 for part in bytes.fromhex(hexes[-1])]
    for ink in ("first", "second"):
        for weight in (0, 0.01, 0.25, 1):
            share = weight**0.5 * int(shares[-1]) / 100
            behind = [
                share * full + (1 - share) * empty
                for full, empty in zip(rgb[ink], rgb["sheet"], strict=True)
            ]
            assert contrast(text, behind) >= 4.5
    rules = re.findall(r"(\.token[^{]*)\{([^}]*)\}", css)
    assert not [selector for selector, rule in rules if re.search(r"(?<![-\w])color:", rule)]


@pytest.mark.parametrize(
    ("token", "shown"),
    [("\n", "\\n"), ("▁Häuser", "▁Häuser"), ("\x00", "\\x00"), ("x" * 25, "x" * 23 + "…")],
)
def test_a_token_is_shown_on_one_short_line(token, shown):
    assert readable(token) == shown


def test_sinusoids_are_one_table_and_learned_positions_one_for_each_side(tiny_config):
    [(name, table)] = position_tables(Transformer(tiny_config, 9)).items()
    assert name == "sinusoidal positions"
    assert torch.equal(table, sinusoids(128, 12))

    learned = Transformer(replace(tiny_config, positions="learned", max_positions=30), 9)
    tables = position_tables(learned)
    assert list(tables) == ["learned positions of the encoder", "learned positions of the decoder"]
    assert torch.equal(tables["learned positions of the encoder"], learned.src_positions.table)
    assert torch.equal(tables["learned positions of the decoder"], learned.tgt_positions.table)
