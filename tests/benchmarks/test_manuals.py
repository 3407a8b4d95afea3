"""Text from translation catalogues, and what is measured on it: mark-up and the filter of noisy pairs."""

import pytest
from manuals import from_roff
from markup import elements
from score_filter import any_other, auc, nearest_in_length


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


def test_wrong_targets_are_those_of_other_pairs_and_auc_is_the_share_of_ordered_pairs():
    targets = ["a", "bb", "cccc", "ddddd", "ee"]
    for shuffle in (any_other, nearest_in_length):
        assert all(a != b for a, b in zip(shuffle(targets), targets, strict=True))
    assert sorted(any_other(targets)) == sorted(targets)
    assert nearest_in_length(targets) == ["bb", "ee", "ddddd", "cccc", "cccc"]
    assert auc([3, 1], [2, 1, 0]) == pytest.approx(4.5 / 6)
