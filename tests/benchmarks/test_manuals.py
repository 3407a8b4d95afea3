"""Text from translation catalogues, and what is measured on it: mark-up and the filter of noisy pairs."""

import pytest
from manuals import entries, from_roff, plain
from markup import elements, marks
from score_filter import any_other, auc, nearest_in_length

CATALOGUE = r"""msgid ""
msgstr "Project-Id-Version: x\n"

#: C/files.page:3 C/disk.page:9
msgid ""
"Open the <gui>Files</gui> "
"\"now\"."
msgstr "Öffnen Sie <gui>Dateien</gui> »jetzt«."

#, fuzzy
msgid "unsure"
msgstr "unsicher"

msgid "missing"
msgstr ""

msgid "one"
msgid_plural "many"
msgstr[0] "eins"
"""


def test_finished_entries_of_a_catalogue_are_read_with_their_pages(tmp_path):
    path = tmp_path / "de.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    source, target = 'Open the <gui>Files</gui> "now".', "Öffnen Sie <gui>Dateien</gui> »jetzt«."
    assert list(entries(path)) == [({"C/files.page", "C/disk.page"}, source, target)]


@pytest.mark.parametrize(
    ("roff", "tags"),
    [
        ("B<ls> [I<\\,FILE\\/>]", "<b>ls</b> [<i>FILE</i>]"),
        ("B<a I<b> c> E<lt>x\\-yE<gt> & z", "<b>a <i>b</i> c</b> &lt;x-y&gt; &amp; z"),
    ],
)
def test_fonts_of_manual_pages_become_tags(roff, tags):
    assert from_roff(roff) == tags
    assert elements(tags)


def test_tags_and_placeholders_are_counted_and_elements_compared_by_their_text():
    text = '<a href="x">two  words</a> &amp; {name} <br/>'
    assert marks(text) == {'<a href="x">': 1, "</a>": 1, "<br/>": 1, "{name}": 1}
    assert elements(text) == {("a", ("href", "x"), "two words"): 1}
    assert elements("<a>crossed <b></a></b>") is None
    assert plain(text) == "two words & {name}"


def test_wrong_targets_are_those_of_other_pairs_and_auc_is_the_share_of_ordered_pairs():
    targets = ["a", "bb", "cccc", "ddddd", "ee"]
    for shuffle in (any_other, nearest_in_length):
        assert all(a != b for a, b in zip(shuffle(targets), targets, strict=True))
    assert sorted(any_other(targets)) == sorted(targets)
    assert nearest_in_length(targets) == ["bb", "ee", "ddddd", "cccc", "cccc"]
    assert auc([3, 1], [2, 1, 0]) == pytest.approx(4.5 / 6)
