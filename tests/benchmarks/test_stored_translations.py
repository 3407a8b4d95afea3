"""Published scores are those of the translations that are stored beside them."""

import pytest
from applications import CORPORA, ROOT
from studies import RESULTS, read_study, read_translations, rescored

from aiayn.data.text_files import read_lines
from aiayn.phrasebook import pairs

STUDIES = sorted(path.name.split(".")[0] for path in RESULTS.glob("translations/*.jsonl.xz"))


def references(study: str) -> list[list[str]]:
    """Return the texts here that the study's runs may have been scored against."""
    if study == "quickstart":
        return [[target for _, target in pairs("test")]]
    # As the captions' authors name the files, and as the published corpora do.
    found = [
        *ROOT.glob("multi30k/data/task1/raw/*"),
        *(CORPORA / "multi30k").glob("*"),
        *(CORPORA / "tatoeba-ende").glob("*"),
    ]
    return [read_lines(path) for path in found if {".de", ".fr"} & {*path.suffixes}]


@pytest.mark.quick("tatoeba_en_de")
@pytest.mark.parametrize("study", STUDIES)
def test_every_published_score_is_that_of_the_stored_translations(study):
    path = RESULTS / f"{study}.jsonl"
    published = {
        f"{run}/{test_set}"
        for run, record in read_study(path).items()
        for test_set in record["evaluation"]
    }
    assert {f"{stored['run']}/{stored['test_set']}" for stored in read_translations(path)} == (
        published
    )
    scored = {name: (stored, again) for name, stored, again in rescored(path, references(study))}
    for name, (stored, again) in scored.items():
        assert again == pytest.approx(stored, abs=1e-9), name
    if missing := published - scored.keys():
        pytest.skip(f"no reference here for {', '.join(sorted(missing))}")
