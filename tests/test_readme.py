"""What the pages tell people to type works, and what they name exists."""

import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from applications import ROOT, TINY, run_application, slow_but, spare_the_pictures, write_pairs
from parsing.generated_grammar import generated_trees, write_split

from aiayn import phrasebook
from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.rules import options_of
from aiayn.config.schema import Config

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "data/README.md",
        ROOT / "outputs/README.md",
    ]
)
# Prefixes of text that the pages' commands name.
ALL_PAIRS = phrasebook.pairs  # of which the commands of the pages get a part
PREFIXES = ["my/train", "my/more", "my/dev", "my/test", "my/other"]
SPLITS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
CAPTIONS = [f"multi30k/data/task1/raw/{split}" for split in SPLITS]


def commands(page: Path) -> list[list[str]]:
    """Every command in the page's fenced bash blocks, as words, without comments."""
    blocks = re.findall(
        r"^```bash\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = "".join(blocks).replace("\\\n", " ").split("\n")
    found = [shlex.split(line, comments=True) for line in lines]
    # CUDA_VISIBLE_DEVICES=0 python train.py ... &
    return [
        [word for word in words if word != "&" and "VISIBLE_DEVICES=" not in word]
        for words in found
        if words
    ]


def quickstart() -> list[list[str]]:
    """What `make quickstart` runs with the project's own programs."""
    # Nothing is to be installed, and -o keeps make from bringing its Makefile up to date, which it
    # does even with -n.
    lines = make("-n", "-o", "Makefile", "quickstart", "INSTALLED=Makefile").split("\n")
    started = [line.removeprefix(".venv/bin/") for line in lines if line.startswith(".venv/bin/")]
    started = [re.split(r" [|>] ", line)[0] for line in started]
    first = (ROOT / "examples/phrasebook.en").read_text(encoding="utf-8").split("\n")[0]
    return [
        shlex.split(line.replace("$(head -n 1 examples/phrasebook.en)", first)) for line in started
    ]


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def in_miniature(words: list[str], data: Path) -> list[str] | None:
    """The same command made small: little training; of text on the hub only the configuration.
    None: not for here.

    Corpora are prepared in the folder `data`.
    """
    if words[0] in (
        "make",
        "pip",
        "wait",
        "git",
        "cd",
        "source",
    ):  # what a shell does: test_first_hour
        return None
    if words[0] in ("aiayn", "echo"):
        return words
    assert words[0] == "python", words
    script, *options = words[1:]
    if script == "evaluate.py":
        return [script, *options, "accelerator=cpu"]
    if "-m" in options:  # test_sweep runs sweeps; here the first job's configuration
        first = [
            re.sub(r"=glob\(.*|(?<=\w),.*", lambda m: "=base" if "glob" in m[0] else "", option)
            for option in options
            if not re.search(r"=(interval|choice)\(", option)  # what Optuna draws from
        ]
        return [
            script,
            *(option for option in first if option != "-m" and "hydra" not in option),
            "--cfg",
            "job",
        ]
    if "--cfg" in options:
        return [script, *options]
    here = {"data=files", "data.source=files", "data=treebank"}
    here |= {
        f"experiment={name}"
        for name in ("quickstart", "captions", "multi30k_en_fr", "multi30k_wu2021")
    }
    if not here.isdisjoint(options) or any(option.startswith("data.train=") for option in options):
        learnt = not any(option.startswith("init_from=") for option in options)
        is_named_french = any(option.startswith("experiment=captions") for option in options)
        return [
            script,
            *options,
            *(option for option in TINY if option not in options),
            f"data.folder={data}",
            *(["data.tokenizer_pairs=400"] if learnt else []),
            *(["data.check_sides=false"] if is_named_french else []),  # it is German here
        ]
    return [script, *options, "--cfg", "job"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Iterator[Path]:
    """Where all commands find what one of them has prepared, with a part of the built-in corpus."""
    parts = {
        split: phrasebook.pairs(split)[:size]
        for split, size in {"train": 400, "val": 9, "test": 7}.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phrasebook, "pairs", parts.__getitem__)
        yield tmp_path_factory.mktemp("data")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty place with the text that the pages' commands name; all pictures are empty ones."""
    monkeypatch.chdir(tmp_path)
    spare_the_pictures(monkeypatch)
    for number, prefix in enumerate(PREFIXES):
        write_pairs(
            tmp_path / prefix, 120 if "train" in prefix or "more" in prefix else 4, seed=number
        )
    columns = (
        Path(f"my/train.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
        for lang in ("en", "de")
    )
    Path("my/train.tsv").write_text(
        "".join(f"{src}\t{tgt}\n" for src, tgt in zip(*columns, strict=True))
    )
    for number, prefix in enumerate(CAPTIONS):
        write_pairs(tmp_path / prefix, 120 if "train" in prefix else 4, seed=number)
    for prefix in CAPTIONS:
        shutil.copy(f"{prefix}.de", f"{prefix}.fr")
    for number, prefix in enumerate(PREFIXES):
        write_split(
            tmp_path / prefix, generated_trees(120 if "train" in prefix else 4, seed=number)
        )
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.mark.parametrize(
    "page",
    slow_but(
        [ROOT / "README.md"],  # README.zh-CN.md has the same commands, as test_docs.py checks
        [page for page in PAGES if commands(page) and page.name != "README.zh-CN.md"],
    ),
    ids=lambda page: page.name,
)
def test_every_command_of_a_page_runs(page, folder, data, monkeypatch):
    for words in commands(page):
        small = in_miniature(words, data)
        if small is None:
            if words[0] in ("wait", "git", "cd", "source") or words[:2] == ["pip", "install"]:
                continue
            assert words[0] == "make", words
            assert words[1] in (
                "quickstart",
                "test",
                "test-all",
                "install",
                "notebook",
                "lint",
                "soak",
                "coverage",
                "docs",
            ), words
            make("-n", words[1])
            if words[1] != "quickstart":
                continue
            small = in_miniature(quickstart()[0], data)  # the run that later commands use
        if small[0] == "echo":  # echo TEXT | aiayn ...
            text, bar, *small = small[1:]
            assert bar == "|", words
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
        outcome = run_application(*small)
        assert outcome.code == 0, f"{shlex.join(words)}\n{outcome.err}"
        assert outcome.out or small[0] == "train.py", shlex.join(words)


def test_what_make_quickstart_runs_works_and_makes_pictures(folder, data):
    steps = quickstart()

    assert [step[:2] for step in steps] == [
        ["python", "train.py"],
        ["aiayn", "attention"],
        ["python", "evaluate.py"],
        ["aiayn", "translate"],
    ]
    outcomes = []
    for step in steps:
        # Scoring nonsense takes its time
        few = ["test=my/other"] if step[1] == "evaluate.py" else []
        outcomes.append(run_application(*in_miniature(step, data), *few))
        assert outcomes[-1].code == 0, f"{shlex.join(step)}\n{outcomes[-1].err}"

    assert outcomes[3].out.count("\n") == 5
    run = folder / "outputs/quickstart"  # the model in examples/ may have been tried, too
    pictures = {path.relative_to(run).as_posix() for path in run.rglob("*.png")}
    assert {"attention.png", "attention/figure_3.png"} <= pictures
    assert (folder / "outputs/quickstart/evaluation/other/hypotheses.txt").read_bytes().count(
        b"\n"
    ) == 4


def test_the_example_sentences_are_new_to_the_corpus_but_made_of_its_words():
    known = {en for split in ("train", "val", "test") for en, _ in ALL_PAIRS(split)}
    words = {word for en, _ in ALL_PAIRS("train") for word in re.findall(r"[\w'-]+", en.lower())}
    lines = (
        (ROOT / "examples/phrasebook.en").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    )

    assert len(lines) == 5
    assert not set(lines) & known
    assert {word for line in lines for word in re.findall(r"[\w'-]+", line.lower())} <= words


def test_make_alone_lists_its_targets():
    listed = [line.split()[1] for line in make("--no-print-directory").split("\n") if line]

    assert listed == [
        "help",
        "install",
        "quickstart",
        "notebook",
        "test",
        "test-all",
        "soak",
        "lint",
        "coverage",
        "docs",
    ]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may end in, as GitHub spells it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_or_heading_and_no_page_names_a_path_of_this_machine(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    sources = re.findall(r"`((?:src|conf|tests|examples|docs)/[\w/.]*)`", text)

    assert [link for link in links if not (page.parent / link.split("#")[0]).exists()] == []
    to_headings = [link.partition("#")[::2] for link in links if "#" in link and "#L" not in link]
    assert [
        link
        for link in to_headings
        if link[1] not in anchors(page.parent / link[0] if link[0] else page)
    ] == []
    assert [path for path in sources if not (ROOT / path).exists()] == []
    assert not re.search(r"(?<![\w.])/(work|root|home|tmp)/", text)


@pytest.mark.parametrize(
    # The change log names options that are gone.
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_option_that_a_page_names_exists(page):
    known = {*options_of(Config), *options_of(EvaluateConfig)}
    sections = {name.split(".")[0] for name in known if "." in name}
    quoted = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))

    named = {
        word.split("=")[0]
        for text in quoted
        for word in text.split()
        if word.split(".")[0] in sections and "." in word
    }

    assert named - known - {"model.output", "search.json"} == set()  # an attribute and a file


def test_every_choice_that_the_table_of_groups_names_is_a_file():
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z`, ]+`) \| (.*) \|$", page, re.MULTILINE)
    groups = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}
    named = 0
    for names, choices in rows:
        folders = [name for name in re.findall(r"`(\w+)`", names) if name in groups]
        for choice in re.findall(r"`([a-z0-9_]+)`", choices) if folders else ():
            assert any(
                (ROOT / "conf" / folder / f"{choice}.yaml").exists() or choice in groups
                for folder in folders
            )
            named += 1
    assert named > 15
    experiments = page.partition("| `experiment` | what")[2].partition("\n\n")[0]
    described = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", experiments, re.M)))
    assert sorted(described) == sorted(path.stem for path in ROOT.glob("conf/experiment/*.yaml"))
