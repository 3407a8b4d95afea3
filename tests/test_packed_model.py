"""examples/en-de.aiayn: the trained model of the repository answers as README says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT
from PIL import Image, ImageChops

import aiayn
from aiayn.errors import ConfigError
from aiayn.visualize.maps import attention_maps

MODEL = ROOT / "examples/en-de.aiayn"


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    """A copy, because a model is converted beside its file."""
    return Path(shutil.copy(MODEL, tmp_path_factory.mktemp("packed")))


def sample(page: str) -> tuple[str, str]:
    """Return the first sentence of a page and its translation, *SOURCE* → *TARGET*."""
    [pair] = re.findall(
        r"^\*([^*]+)\* → \*([^*]+)\*", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    return pair


def test_the_sample_of_both_readmes_is_what_the_packed_model_writes(packed):
    source, target = sample("README.md")
    assert sample("README.zh-CN.md") == (source, target)
    for engine in ("torch", "ctranslate2"):
        assert aiayn.load(packed, engine=engine).translate([source]) == [target]


def test_the_example_of_the_page_on_serving_is_what_the_served_model_answers(packed):
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    [model] = re.findall(r"^aiayn serve (examples/\S+)", page, re.MULTILINE)
    [source] = re.findall(r"--data-urlencode 'q=([^']+)'", page)
    [answer] = re.findall(r'^# \{"translatedText":"(.+)"\}$', page, re.MULTILINE)
    assert ROOT / model == MODEL
    assert aiayn.load(packed).translate([source]) == [answer]


def test_the_packed_model_looks_at_the_words_that_it_translates(packed):
    maps = attention_maps(aiayn.load(packed), "The children are playing in the garden.")
    translation = maps.translation.text
    assert translation == "Die Kinder spielen im Garten."
    looks_at = {
        written: maps.src[position]
        for written, position in zip(
            maps.tgt_out, maps.cross.mean(1).sum(0).argmax(-1).tolist(), strict=True
        )
    }
    for word, source in (("Kinder", "children"), ("spielen", "playing"), ("Garten", "garden")):
        assert looks_at[f"▁{word}"] == f"▁{source}"


def test_the_packed_model_is_small_and_its_card_names_text_and_licence():
    card = (ROOT / "examples/en-de.md").read_text(encoding="utf-8")
    assert MODEL.stat().st_size < 8e6
    assert f"{MODEL.stat().st_size / 1e6:.1f} MB" in card
    named = re.findall(r"\[([^\]]+)\]", card)
    assert {"Tatoeba", "CC BY 2.0 FR", "manythings.org/anki"} <= {*named}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_what_its_use_leaves_in_examples_is_ignored_by_git():
    left = [
        "examples/en-de.ctranslate2-0123456789abcdef/model.bin",
        "examples/attention/index.html",
    ]
    ignored = subprocess.run(
        ["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ignored.stdout.split() == left


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs/images").glob("*.png")), ids=lambda p: p.stem
)
def test_every_picture_of_the_pages_names_the_commit_that_drew_or_stored_it(picture):
    with Image.open(picture) as stored:
        [commit] = [stored.text[key] for key in ("commit", "stored by") if key in stored.text]
    assert re.fullmatch(r"[0-9a-f]{7,40}", commit)


@pytest.mark.slow
def test_the_pictures_are_what_one_command_draws(tmp_path, monkeypatch):
    """Two of them: fonts of figures may differ between machines, and many small marks."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import pictures

    pictures.draw_attention(tmp_path)
    for name in ("attention_map.png", "attention_figure_3.png"):
        assert max(high for _, high in difference(tmp_path, name).getextrema()) < 64


@pytest.mark.slow
def test_the_pictures_of_pages_are_what_a_browser_shows_today(tmp_path, monkeypatch):
    """A few pixels may differ, as another release draws a letter; another word or colour may not."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import pictures

    try:
        program = pictures.find_browser()
    except ConfigError:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    pictures.draw_pages(tmp_path, program)
    assert len([*tmp_path.iterdir()]) == 3
    for path in tmp_path.iterdir():
        histogram = difference(tmp_path, path.name).convert("L").histogram()
        assert sum(histogram[64:]) < 0.005 * sum(histogram), path.name


def difference(folder: Path, name: str) -> Image.Image:
    """How a drawn picture differs from the stored one, which has its size."""
    with Image.open(folder / name) as drawn, Image.open(ROOT / "docs/images" / name) as stored:
        assert drawn.size == stored.size, name
        return ImageChops.difference(drawn.convert("RGB"), stored.convert("RGB"))


def test_pictures_without_a_browser_are_refused_in_one_line(tmp_path):
    missing = str(tmp_path / "none")
    run = subprocess.run(
        [sys.executable, "tools/pictures.py"],
        cwd=ROOT,
        env=os.environ | {"CHROMIUM": missing},
        capture_output=True,
        text=True,
        check=False,
    )
    [line] = run.stderr.splitlines()
    assert run.returncode == 1
    assert line.startswith("error: no Chromium: apt-get install")
    assert missing in line
