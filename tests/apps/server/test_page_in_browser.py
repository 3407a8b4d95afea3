"""The page of `aiayn serve` as people use it, in a real browser."""

import json

import pytest
from apps.server.conftest import serving
from faults.harness import wait_until

from aiayn.search.translations import Translation

SHOWN = r"[...document.querySelectorAll('#translation p')].map(e => e.textContent).join('\n')"
HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> the house"


@pytest.fixture(scope="module")
def echo(translator, tmp_path_factory):
    """A server whose translations repeat the source, so that what is shown is known; its attention
    is the model's.
    """

    def n_best(lines, n, *_):
        return [
            [Translation(f"{line}{' again' * k}", 0.0, 0.0, []) for k in range(n)] for line in lines
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translator, "n_best", n_best)
        with serving(
            translator, tmp_path_factory.mktemp("echo") / "log", keys=["secret"]
        ) as server:
            yield server


@pytest.fixture
def page(browser, echo):
    """The page, with the key typed in; afterwards nothing may have gone wrong or been asked of
    another place.
    """
    opened(browser, echo.address)
    typed(browser, "#key", "secret")
    yield browser
    assert browser.complaints() == []
    assert all(address.startswith((f"{echo.address}/", "data:")) for address in browser.requests())


def opened(browser, address: str, **window) -> None:
    browser.open(address, **window)
    until(browser, "document.documentElement.dataset.ready === 'true'")


def until(browser, script: str) -> None:
    wait_until(lambda: browser.run(script))


def typed(browser, selector: str, text: str) -> None:
    browser.run(
        f"(() => {{ const e = document.querySelector('{selector}'); e.focus(); e.select(); }})()"
    )
    browser.command("Input.insertText", text=text)


def translated(browser, text: str) -> None:
    """Types a text and waits for its translation, which is the same."""
    typed(browser, "#source", text)
    until(browser, f"{SHOWN} === {json.dumps(text)}")
    until(browser, "document.querySelector('#status').innerText === ''")


def words(browser, selector: str) -> list[str]:
    return browser.run(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")


def test_typing_shows_the_translation_and_hostile_text_stays_text(page):
    translated(page, HOSTILE)

    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert words(page, ".word") == HOSTILE.split(" ")
    assert words(page, "#alternatives button") == [HOSTILE + " again" * k for k in range(3)]


def test_an_alternative_that_is_chosen_replaces_the_translation(page):
    translated(page, "the house")

    page.click("#alternatives li:nth-child(2) button")

    assert page.run(SHOWN) == "the house again"
    assert words(page, "#alternatives [aria-pressed=true]") == ["the house again"]


def test_a_click_on_a_word_shows_where_the_model_looked(page):
    translated(page, "the old house")

    page.click('.word[data-word="1"]')
    until(page, "document.querySelectorAll('#drawing .keys .token').length === 3")

    assert words(page, ".word[aria-pressed=true]") == ["old"]
    assert words(page, "#drawing .queries .looked") == ["old"]
    shares = page.run(
        "[...document.querySelectorAll('#drawing .keys .token')].map(e => Number(e.dataset.weight))"
    )
    assert 0 < sum(shares) < 1
    best = ["the", "old", "house"][shares.index(max(shares))]
    assert page.run("document.querySelector('#says').innerText").startswith(
        f"old looks at: {best} "
    )


def test_everything_can_be_done_from_the_keyboard(page):
    translated(page, "the old house")

    for key in ("Tab", "Tab", "ArrowRight", "ArrowRight", "Enter"):  # over the button that copies
        page.press(key)
    until(page, "document.querySelectorAll('#drawing .looked').length === 1")
    assert words(page, ".word[aria-pressed=true]") == ["house"]

    page.press("Escape")
    assert words(page, ".word[aria-pressed=true]") == []


def test_lines_are_translated_each_and_only_new_ones_are_sent(page):
    translated(page, "the house\n\ntwo cats")
    page.events.clear()
    translated(page, "the house\n\nthe man\ntwo cats")

    sent = [
        event["params"]["request"].get("postData")
        for event in page.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert [json.loads(body)["q"] for body in sent if body] == [["the man"]]


def test_without_a_key_the_page_says_so(browser, echo):
    opened(browser, echo.address)
    typed(browser, "#source", "the house")

    until(browser, "document.querySelector('#status').innerText.includes('API key')")
    assert browser.run("document.querySelector('#key').offsetParent !== null")


@pytest.mark.parametrize(("text", "direction"), [("הבית הישן", "rtl"), ("the house", "ltr")])
def test_text_has_the_direction_of_its_script(page, text, direction):
    translated(page, text)

    for selector in ("#source", "#translation", "#alternatives"):
        script = f"getComputedStyle(document.querySelector('{selector}')).direction"
        assert page.run(script) == direction, selector


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1300, False)])
def test_it_fits_a_phone_and_has_a_dark_and_a_light_face(browser, echo, width, dark):
    opened(browser, echo.address, width=width, dark=dark)
    typed(browser, "#key", "secret")
    translated(browser, "the old house of the man sees two cats" + " and the old house" * 5)
    browser.click('.word[data-word="3"]')
    until(browser, "document.querySelectorAll('#drawing .looked').length === 1")

    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.faint_words() == []
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(18, 21, 27)" if dark else "rgb(244, 245, 247)")
