"""The page as people use it, in a real browser: it must look where the model looks."""

from dataclasses import replace

import pytest
import torch
from faults.harness import wait_until

from aiayn.model.embedding import sinusoids
from aiayn.search.translations import Translation
from aiayn.visualize.explorer import write_explorer
from aiayn.visualize.maps import AttentionMaps

HALF = 0.5 / 255 + 0.0006  # rounding to a byte, and to three digits
FIRST, SECOND = ".panel.first", ".panel.second"


def token(side: str, index: int, panel: str = FIRST) -> str:
    return f'{panel} .token[data-side="{side}"][data-index="{index}"]'


@pytest.fixture
def page(browser, maps, tiny_config, tmp_path):
    """open(hash) loads the page of `maps`; afterwards nothing may have gone wrong or been asked of
    a network.
    """
    path = tmp_path / "index.html"
    write_explorer(path, maps, {"sinusoidal positions": sinusoids(20, 12)}, tiny_config, "small")

    def load(address: str = "", **window) -> None:
        browser.open(path.as_uri() + address, **window)
        assert browser.run("document.documentElement.dataset.ready") == "true", browser.complaints()

    load()
    yield load
    assert browser.complaints() == []
    assert [address.split("#")[0] for address in browser.requests()] == [path.as_uri()]


def shares(browser, side: str, panel: str = FIRST) -> torch.Tensor:
    """The weights at the tokens of one side; none where none is shown."""
    script = (
        f"[...document.querySelectorAll('{panel} .token[data-side={side}]')].map(e => "
        "e.dataset.weight ?? null)"
    )
    return torch.tensor([float(weight) for weight in browser.run(script) if weight is not None])


def is_shown(browser, side: str, weights: torch.Tensor, panel: str = FIRST) -> None:
    torch.testing.assert_close(shares(browser, side, panel), weights, atol=HALF, rtol=0)


def picture(browser, selector: str) -> str:
    return browser.run(f"document.querySelector('{selector}').toDataURL()")


def test_pointing_at_a_word_shows_where_it_looks_and_who_looks_at_it(page, browser, maps):
    page("#show=cross&head=2.3")

    browser.point(token("queries", 1))
    is_shown(browser, "keys", maps.cross[1, 2, 1])
    assert browser.run("document.querySelectorAll('.panel.first .looked').length") == 1
    lines = browser.run("document.querySelectorAll('.panel.first path:not(.off)').length")
    assert lines == int((maps.cross[1, 2, 1] >= 0.02).sum())
    best = ["the", "old", "ho", "use", "</script>", "end"][int(maps.cross[1, 2, 1].argmax())]
    assert browser.run("document.getElementById('says').innerText").startswith(
        f"alte looks at: {best} "
    )

    browser.point(token("keys", 4))
    is_shown(browser, "queries", maps.cross[1, 2, :, 4])

    browser.away()
    assert len(shares(browser, "keys")) == len(shares(browser, "queries")) == 0


def test_choosing_a_kind_a_layer_and_a_head_changes_the_picture(page, browser, maps):
    page("#show=cross&head=1.1&view=matrix")
    first = picture(browser, f"{FIRST} .cells canvas")

    browser.click('.thumb[data-layer="1"][data-head="0"]')
    assert picture(browser, f"{FIRST} .cells canvas") != first
    browser.point(token("queries", 3))
    is_shown(browser, "keys", maps.cross[1, 0, 3])

    browser.click('[data-tab="decoder"]')
    browser.point(token("queries", 2))
    is_shown(browser, "keys", maps.decoder_self[1, 0, 2])

    browser.click('[data-tab="encoder"]')
    browser.click('.thumb[data-layer="0"][data-head="-1"]')
    browser.point(token("queries", 5))
    is_shown(browser, "keys", maps.encoder_self[0, :, 5].mean(0))
    assert browser.run("document.querySelectorAll('.thumb').length") == 2 * (3 + 1)
    assert browser.run("location.hash") == "#show=encoder&head=1.mean&view=matrix"


@pytest.mark.parametrize("n_decoder_layers", [1, 3])
def test_encoder_and_decoder_of_other_depths_each_show_their_own_layers(
    browser, maps, tiny_config, tmp_path, n_decoder_layers
):
    decoder, cross = (one[[0, 1, 0][:n_decoder_layers]] for one in (maps.decoder_self, maps.cross))
    path = tmp_path / "index.html"
    deep = replace(tiny_config, n_layers=2, n_decoder_layers=n_decoder_layers)
    write_explorer(path, replace(maps, decoder_self=decoder, cross=cross), {}, deep, "small")
    rows = (
        "[...document.querySelectorAll('#overview .mark[data-layer]')].filter((one) => "
        "one.offsetWidth).length"
    )

    browser.open(f"{path.as_uri()}#show=encoder&head=2.1")
    assert f"· 2 and {n_decoder_layers} layers," in browser.run(
        "document.getElementById('model').innerText"
    )
    assert browser.run(rows) == 2
    browser.point(token("queries", 1))
    is_shown(browser, "keys", maps.encoder_self[1, 0, 1])
    browser.click('[data-tab="cross"]')
    assert browser.run(rows) == n_decoder_layers
    browser.point(token("queries", 1))
    is_shown(browser, "keys", cross[min(1, n_decoder_layers - 1), 0, 1])
    browser.open(f"{path.as_uri()}#show=encoder&head={max(2, n_decoder_layers)}.1")
    browser.point(token("queries", 1))
    is_shown(browser, "keys", maps.encoder_self[1, 0, 1])
    assert browser.complaints() == []


def test_two_heads_stand_side_by_side_and_follow_one_word(page, browser, maps):
    page("#show=encoder&head=1.2")

    browser.click("#compare")
    browser.click('.thumb[data-layer="1"][data-head="2"]')
    browser.point(token("queries", 4, SECOND))

    is_shown(browser, "keys", maps.encoder_self[0, 1, 4], FIRST)
    is_shown(browser, "keys", maps.encoder_self[1, 2, 4], SECOND)
    says = browser.run("document.getElementById('says').innerText")
    assert "layer 1, head 2: " in says
    assert "layer 2, head 3: " in says
    labels = browser.run(
        "[...document.querySelectorAll('.thumb[aria-pressed=true]')].map(e => e.ariaLabel)"
    )
    assert labels == [
        "layer 1, head 2, shown as first head",
        "layer 2, head 3, shown as second head",
    ]
    left, right = browser.run(
        "[...document.querySelectorAll('.panel')].map(e => e.getBoundingClientRect().x)"
    )
    assert left + 200 < right

    browser.click("#compare")
    assert browser.run(f"document.querySelector('{SECOND}').hidden")


def test_a_click_holds_a_word_until_escape(page, browser, maps):
    page("#show=cross&head=1.1")

    browser.click(token("queries", 2))
    browser.point(token("queries", 0))
    is_shown(browser, "keys", maps.cross[0, 0, 2])
    assert browser.run("location.hash").endswith("&queries=3")

    browser.press("Escape")
    assert len(shares(browser, "keys")) == 0
    browser.point(token("queries", 3))
    is_shown(browser, "keys", maps.cross[0, 0, 3])


def test_everything_can_be_done_with_the_keyboard(page, browser, maps):
    page("#show=encoder&head=1.1")

    browser.press("Tab")
    browser.press("ArrowRight")
    browser.press("ArrowRight")  # to the kind after the next
    assert (
        browser.run("document.querySelector('[role=tab][aria-selected=true]').dataset.tab")
        == "cross"
    )
    browser.press("Tab")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    browser.press("Enter")
    assert browser.run("location.hash") == "#show=cross&head=2.2"
    for _ in range(5):  # past compare, the two views, layer and head
        browser.press("Tab")
    browser.press("Tab")
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    is_shown(browser, "keys", maps.cross[1, 1, 2])
    browser.press("ArrowRight")
    is_shown(browser, "queries", maps.cross[1, 1, :, 2])
    browser.press("Enter")
    assert browser.run("location.hash").endswith("&keys=3")


def test_another_address_shows_what_it_says_and_nothing_of_the_one_before(page, browser, maps):
    page("#show=encoder&head=1.1&with=1.2&view=matrix&queries=6")  # the decoder has only 5
    is_shown(browser, "keys", maps.encoder_self[0, 0, 5])

    browser.run("location.hash = '#show=decoder&head=2.3'")
    selected = "document.querySelector('[role=tab][aria-selected=true]').dataset.tab"
    wait_until(lambda: browser.run(selected) == "decoder")
    assert browser.complaints() == []
    assert len(shares(browser, "keys")) == 0
    assert browser.run(f"document.querySelectorAll('{FIRST} .lines path').length") > 0
    browser.point(token("queries", 1))
    is_shown(browser, "keys", maps.decoder_self[1, 2, 1])


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_text_from_right_to_left_begins_at_the_right_and_keeps_its_shares(
    browser, maps, tiny_config, tmp_path, width, dark
):
    hebrew = ["▁הבית", "▁הישן", "▁של", "▁האיש", "▁כאן", "</s>"]
    path = tmp_path / "index.html"
    written = replace(maps, src=hebrew, sentence="הבית הישן של האיש כאן")
    write_explorer(path, written, {}, tiny_config, "small")
    browser.open(f"{path.as_uri()}#show=cross&head=1.1", width=width, dark=dark)

    directions = "[...document.querySelectorAll('#sentence, #translation')].map(DIRECTION)"
    direction = "e => getComputedStyle(e).direction"
    assert browser.run(directions.replace("DIRECTION", direction)) == ["rtl", "ltr"]
    words = f"[...document.querySelectorAll('{FIRST} .keys .text')].map({direction})"
    assert browser.run(words) == ["rtl"] * 5 + ["ltr"]  # the mark of the end is an English word

    browser.point(token("queries", 1))
    # The words of the sentence below stand in the order of their shares, from left to right.
    places = "[...document.querySelectorAll('#says bdi')].map(e => e.getBoundingClientRect())"
    found = browser.run(f"{places}.map(box => [box.y, box.x])")
    assert len(found) > 2
    assert found == sorted(found)
    assert browser.faint_words() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (390, True)])
def test_long_sentences_stay_within_the_window(browser, tiny_config, tmp_path, width, dark):
    n = 60
    tokens = [*(["▁Donaudampfschifffahrt", "s", "gesellschaft"] * 20)[: n - 1], "</s>"]
    even = torch.full((6, 8, n, n), 1 / n)
    long = AttentionMaps(
        tokens, tokens, tokens, even, even, even, "long", Translation("lang", -1.0, -2.0, [])
    )
    path = tmp_path / "index.html"
    write_explorer(path, long, {}, tiny_config, "small")
    assert path.stat().st_size < 900_000

    for view in ("lines", "matrix"):
        browser.open(
            f"{path.as_uri()}#show=cross&head=1.1&with=6.8&view={view}", width=width, dark=dark
        )
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelectorAll('.panel.second .token').length") == 2 * n
        assert browser.complaints() == []
