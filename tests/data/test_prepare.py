import hashlib
import io
import itertools
import json
import logging
import os
import pickle
import random
import re
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from applications import composed_options
from texts import data_config, write_lines

from aiayn.cli.prepare import prepare
from aiayn.config.data import DataConfig
from aiayn.data import corpus as corpus_store
from aiayn.data import encode as encoding
from aiayn.data import preparation as prepare_module
from aiayn.data.corpus import open_verified
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.preparation import SHAPING, check_text, infer_from_text, prepare_corpus
from aiayn.data.sources import FileText
from aiayn.errors import ConfigError, DataError

WORDS = [
    "ein",
    "zwei",
    "drei",
    "haus",
    "hund",
    "katze",
    "läuft",
    "schläft",
    "grün",
    "und",
    "oder",
    "nicht",
    "heute",
]


def sentences(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(count)]


@pytest.fixture
def config(tmp_path) -> DataConfig:
    return data_config(
        train=write_lines(tmp_path / "train", sentences(1, 211), sentences(2, 211)),
        val=write_lines(tmp_path / "val", sentences(3, 13), sentences(4, 13)),
        folder=str(tmp_path / "data"),
        max_length=40,
        max_length_ratio=99.0,
    )


def rows(split: corpus_store.PreparedSplit) -> list[tuple[list[int], list[int]]]:
    return [tuple(ids.tolist() for ids in split.pair(number)) for number in range(len(split))]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def visible(folder: str) -> list[str]:
    """Everything in a data folder but its locks."""
    return sorted(p.name for p in Path(folder).iterdir() if p.suffix != ".lock")


def test_flat_arrays_hold_the_ids_of_every_pair_in_the_order_of_the_text(config):
    found = prepare_corpus(config)
    for split, seeds, count in ((found.train, (1, 2), 211), (found.val, (3, 4), 13)):
        src, tgt = (found.tokenizer.encode(sentences(seed, count)) for seed in seeds)
        assert rows(split) == list(zip(src, tgt, strict=True))
        assert split.src.lengths.tolist() == [len(ids) + 1 for ids in src]
        assert split.tgt.flat.tolist() == list(itertools.chain(*tgt))
        assert split.src.flat.dtype == np.uint16
    assert found.folder.name == f"en-de-{found.fingerprint[:16]}"
    assert found.tokenizer.vocab_size == 300
    assert found.report["train"]["kept"] == 211
    assert found.report["val"]["src_tokens"] == len(found.val.src.flat)
    manifest = json.loads((found.folder / "manifest.json").read_text())
    written = contents(found.folder)
    del written["manifest.json"]
    assert {name: file["sha256"] for name, file in manifest["files"].items()} == written


# by the first program with FORMAT 3
STORED = "fe01d07777ad4c1e1b557a26fefc84a353dfd80046ec333d4d9f64968dc0b908"


def test_a_corpus_prepared_by_an_earlier_version_is_found_again(config, tmp_path):
    """Fingerprint and bytes of a fixed text, as that version had them; if this fails on purpose,
    raise FORMAT.
    """

    def fixed(a: int, count: int) -> list[str]:
        return [
            " ".join(WORDS[(a * i + j * j + i * j) % 13] for j in range(2 + a * i % 8))
            for i in range(count)
        ]

    train = write_lines(tmp_path / "t", fixed(1, 211), fixed(2, 211))
    val = write_lines(tmp_path / "v", fixed(3, 13), fixed(4, 13))
    found = prepare_corpus(replace(config, train=train, val=val))
    assert found.fingerprint == STORED
    files = json.loads((found.folder / "manifest.json").read_text())["files"]
    apart = ("tokenizer.json", "report.json")  # which say more than they once did
    assert {name: file["sha256"][:8] for name, file in files.items() if name not in apart} == {
        "train.src.bin": "15d55a2e",
        "train.src.npy": "651f504b",
        "train.tgt.bin": "8ca0f1ed",
        "train.tgt.npy": "29141b03",
        "val.src.bin": "d762ccc3",
        "val.src.npy": "8c3fe6de",
        "val.tgt.bin": "12d5740e",
        "val.tgt.npy": "22f2cad0",
    }


def test_chunks_do_not_show_in_the_files(config, monkeypatch):
    whole = contents(prepare_corpus(config).folder)
    monkeypatch.setattr(encoding, "CHUNK_PAIRS", 17)
    assert contents(prepare_corpus(replace(config, folder=config.folder + "2")).folder) == whole
    monkeypatch.setattr(encoding, "SEVERAL", 2)
    assert contents(prepare_corpus(replace(config, folder=config.folder + "3")).folder) == whole


def test_vocabularies_beyond_16_bits_take_32(config, monkeypatch):
    narrow = prepare_corpus(config)
    monkeypatch.setattr(prepare_module.Tokenizer, "vocab_size", 65_537)
    wide = prepare_corpus(replace(config, folder=config.folder + "2"))
    assert wide.train.tgt.flat.dtype == np.uint32
    assert wide.train.tgt.flat.tolist() == narrow.train.tgt.flat.tolist()


def test_length_rules_drop_training_pairs_only_and_the_report_adds_up(config, tmp_path):
    long, short = "haus " * 30, "haus"
    src, tgt = sentences(1, 200), sentences(2, 200)
    src[1:6], tgt[1:6] = ["", "a", long, "haus " * 9, "x\u2028y"], ["b", " ", long, short, "\x00"]
    train = write_lines(tmp_path / "t", src, tgt)
    val = write_lines(tmp_path / "v", [long, "haus " * 9, ""], [long, short, "leer"])
    found = prepare_corpus(
        replace(config, train=train, val=val, max_length=22, max_length_ratio=3.0)
    )
    files, train = f"{train}.en and {train}.de", found.report["train"]
    size = found.tokenizer.encode(["haus " * 9, short])
    assert len(size[0]) > 3 * len(size[1]) + 5, "the example must break the ratio"
    assert train["dropped"]["too_long"] >= 1
    assert train["first_dropped"]["too_long"][0] == f"{files}: line 4"
    assert f"{files}: line 5" in train["first_dropped"]["length_ratio"]
    assert train["first_dropped"]["control_characters"] == [f"{files}: line 6"]
    assert train["read"] == 200 == train["kept"] + sum(train["dropped"].values())
    assert len(found.train) == train["kept"]
    assert max(found.train.src.lengths.max(), found.train.tgt.lengths.max()) <= 22 + 1
    assert found.report["val"]["dropped"] == {"empty": 1}
    assert len(found.val) == 2


def test_a_second_start_reads_neither_text_nor_writes(config, monkeypatch):
    first = prepare_corpus(config)
    before = {p: p.stat().st_mtime_ns for p in first.folder.iterdir()}
    monkeypatch.setattr(FileText, "pairs", None)
    monkeypatch.setattr("aiayn.data.preparation._locked", None)
    again = prepare_corpus(config)
    assert again.fingerprint == first.fingerprint
    assert {p: p.stat().st_mtime_ns for p in first.folder.iterdir()} == before


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_link_leads_to_a_whole_corpus_or_is_refused_and_stays(config, is_missing, tmp_path):
    folder, shared = prepare_corpus(config).folder, tmp_path / "shared"
    folder.rename(shared)
    folder.symlink_to(shared)
    assert prepare_corpus(config).folder == folder
    for file in shared.iterdir():
        file.unlink()
    if is_missing:
        shared.rmdir()
    with pytest.raises(DataError, match=f"{folder} is a symbolic link, not to a prepared corpus"):
        prepare_corpus(config)
    assert folder.is_symlink()
    assert not is_missing or not shared.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("vocab_size", 290),
        ("src_vocab_size", 290),
        ("max_length", 30),
        ("max_length_ratio", 4.0),
        ("tokenizer_pairs", 100),
        ("src_lang", "fr"),
    ],
)
def test_whatever_shapes_the_corpus_changes_its_fingerprint(config, option, value, tmp_path):
    if option == "src_lang":
        for name in ("train", "val"):
            (tmp_path / f"{name}.fr").write_bytes((tmp_path / f"{name}.en").read_bytes())
    first, second = prepare_corpus(config), prepare_corpus(replace(config, **{option: value}))
    assert first.fingerprint != second.fingerprint
    assert first.folder != second.folder


def test_every_data_option_is_either_in_the_fingerprint_or_known_not_to_shape_the_corpus(config):
    inputs = {
        "source",
        "hub_path",
        "hub_name",
        "hub_revision",
        "train",
        "val",
    }  # through RawText.identity
    inputs |= {"tokenizer", "symbols", "src_vocab_size"}
    inputs |= {"drop_wrong_language", "drop_without_letters"}
    elsewhere = {
        "test",
        "folder",
        "tokens_per_step",
        "parts_per_step",
        "max_tokens_per_device",
        "micro_batches",
    }
    elsewhere |= {
        "temperature",
        "weights",
        "num_workers",
        "prepare_per_node",
        "prepare_processes",
        "write_dropped",
    }
    elsewhere |= {"check_sides", "max_expansion"}
    assert set(asdict(config)) == set(SHAPING) | inputs | elsewhere


@pytest.mark.quick("more0")
@pytest.mark.parametrize(
    "more",
    [[], ["data.tokenizer=unigram"], ["data.src_vocab_size=261", "model.tie_embeddings=none"]],
)
def test_a_fitted_vocabulary_is_as_large_as_a_repetitive_text_supports(tmp_path, caplog, more):
    prefixes = {
        split: write_lines(tmp_path / split, ["one house"] * pairs, ["ein Haus"] * pairs)
        for split, pairs in (("train", 900), ("val", 9))
    }
    texts = [f"data.{split}={prefix}" for split, prefix in prefixes.items()]
    given = composed_options("data=files", *texts, f"data.folder={tmp_path}/data", *more)
    caplog.set_level(logging.INFO)
    fitted = infer_from_text(given).data
    assert (
        f"fitted   to a text of few different words: data.vocab_size={fitted.vocab_size}"
        in caplog.text
    )
    assert 260 < fitted.vocab_size < 300
    assert prepare_corpus(fitted).tokenizer.vocab_size == fitted.vocab_size
    assert caplog.text.count("learning ") == 1
    with pytest.raises(DataError, match=f"supports at most {fitted.vocab_size};"):
        prepare_corpus(replace(fitted, vocab_size=fitted.vocab_size + 1))


def test_a_fitted_vocabulary_is_that_of_the_number_of_pairs_where_words_are_enough(tmp_path):
    words = [" ".join(f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for _ in "ab") for n in range(640)]
    prefix = write_lines(tmp_path / "train", words, words)
    given = composed_options("data=files", f"data.train={prefix}", f"data.val={prefix}")
    assert infer_from_text(given).data.vocab_size == 320


def test_a_lower_cased_corpus_is_another_corpus_of_lower_case_only(config):
    kept, lowered = prepare_corpus(config), prepare_corpus(replace(config, lowercase=True))
    assert kept.folder != lowered.folder
    texts = [
        corpus.tokenizer.decode([tgt for _, tgt in rows(corpus.train)])
        for corpus in (lowered, kept)
    ]
    assert sorted(texts[0]) == sorted(text.lower() for text in texts[1])


def test_a_parser_can_learn_xx_for_every_tag_while_its_references_keep_theirs(config, tmp_path):
    trees = ["(S (NP DT NN )NP (VP VBZ )VP . )S", "(X (QP $ CD )QP )X"]
    for name in ("train", "val"):
        (tmp_path / f"{name}.words").write_text("The cat sleeps .\n$ 5\n" * 9)
        (tmp_path / f"{name}.trees").write_text("".join(f"{tree}\n" for tree in trees * 9))
    parsing = replace(
        config,
        task="parsing",
        src_lang="words",
        tgt_lang="trees",
        vocab_size=270,
        max_length_ratio=20,
    )

    kept, xx = prepare_corpus(parsing), prepare_corpus(replace(parsing, tags="xx"))

    def targets(corpus):
        return set(corpus.tokenizer.decode([tgt for _, tgt in rows(corpus.train)]))

    assert targets(kept) == set(trees)
    assert targets(xx) == {"(S (NP XX XX )NP (VP XX )VP XX )S", "(X (QP XX XX )QP )X"}
    assert kept.folder != xx.folder
    tested = TranslationDataModule(replace(parsing, tags="xx", test=str(tmp_path / "train")))
    tested.setup("test")
    found = xx.tokenizer.decode(
        [row.tolist() for batch in tested.test_dataloader() for row in batch.tgt_out]
    )
    assert set(found) == targets(xx), "the loss of test text is that of what the model learns"


def test_the_text_decides_not_its_name_nor_its_compression(config, tmp_path):
    first = prepare_corpus(config)
    moved = write_lines(tmp_path / "elsewhere", sentences(1, 211), sentences(2, 211))
    assert prepare_corpus(replace(config, train=moved)).fingerprint == first.fingerprint
    (tmp_path / "train.en").write_bytes(
        (tmp_path / "train.en").read_bytes().replace(b"haus", b"maus", 1)
    )
    assert prepare_corpus(config).fingerprint != first.fingerprint


def test_the_bpe_is_learned_on_evenly_spread_pairs(config, monkeypatch):
    seen = []
    train = prepare_module.Tokenizer.train

    def spy(batches, vocab_size, **options):
        kept = list(batches)
        seen.extend(line for batch in kept for line in batch)
        return train(kept, vocab_size, **options)

    monkeypatch.setattr(prepare_module.Tokenizer, "train", spy)
    assert len(prepare_corpus(replace(config, tokenizer_pairs=50)).train) == 211
    assert len(seen) == 100


@pytest.mark.parametrize("harm", ["shorter", "flipped", "missing", "manifest"])
def test_a_damaged_corpus_is_built_again_to_the_same_bytes_and_a_warning_says_so(
    config, harm, caplog
):
    first = prepare_corpus(config)
    whole, path = contents(first.folder), first.folder / "train.tgt.bin"
    data = path.read_bytes()
    if harm == "shorter":
        path.write_bytes(data[:-2])
    elif harm == "flipped":
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif harm == "missing":
        path.unlink()
    else:
        (first.folder / "manifest.json").write_text('{"files": ')
    with caplog.at_level(logging.WARNING):
        again = prepare_corpus(config)
    assert contents(again.folder) == whole
    assert "is damaged" in caplog.text
    assert ("manifest.json" if harm == "manifest" else "train.tgt.bin") in caplog.text
    assert visible(config.folder) == [first.folder.name]


def changed_by_hand(folder: Path, name: str, content: bytes) -> None:
    """Replaces a file of a prepared corpus, and its size and checksum in the manifest."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_corpus_changed_by_hand_is_built_again(config):
    first = prepare_corpus(config)
    whole = contents(first.folder)
    changed_by_hand(first.folder, "val.src.bin", (first.folder / "val.src.bin").read_bytes()[:-3])
    assert contents(prepare_corpus(config).folder) == whole


def build_in_child_killed_at(config: DataConfig, event: int) -> bool:
    """Kills a forked child at its n-th access to a file or folder; returns whether it died of
    that.
    """
    child = os.fork()
    if child == 0:
        seen = itertools.count()

        def kill(name, _):
            if name.split(".")[0] in ("open", "os", "shutil") and next(seen) == event:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(kill)
            prepare_corpus(config)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_build_killed_anywhere_leaves_no_corpus_and_the_next_one_gives_the_same_bytes(config):
    expected = contents(prepare_corpus(replace(config, folder=config.folder + "2")).folder)
    event, step = 0, 8
    while build_in_child_killed_at(config, event):
        found = visible(config.folder) if Path(config.folder).exists() else []
        complete = [name for name in found if not name.endswith(".tmp")]
        assert all(contents(Path(config.folder) / name) == expected for name in complete)
        assert len(found) - len(complete) <= 1, "the next builder sweeps what the last one left"
        if complete:
            break
        event += step
    assert event > 5 * step
    found = prepare_corpus(config)
    assert contents(found.folder) == expected
    assert visible(config.folder) == [found.folder.name]


@pytest.mark.slow
def test_a_rebuild_killed_anywhere_still_leads_to_the_same_bytes(config):
    target = prepare_corpus(config).folder
    expected = contents(target)
    for event in itertools.count(0, 5):
        if target.exists():
            (target / "report.json").write_text("{}")
        if not build_in_child_killed_at(config, event):
            break
        if target.exists() and contents(target) != expected:
            assert (target / "report.json").read_text() == "{}", (
                "a damaged corpus is replaced at once or not at all"
            )
    assert contents(prepare_corpus(config).folder) == expected


def test_text_that_changes_while_it_is_read_is_refused(config, monkeypatch):
    learn = prepare_module.learn_tokenizer

    def grow(config, *others):
        tokenizer = learn(config, *others)
        for lang in ("en", "de"):
            with open(f"{config.train}.{lang}", "ab") as file:
                file.write(b"haus\n")
        return tokenizer

    monkeypatch.setattr(prepare_module, "learn_tokenizer", grow)
    with pytest.raises(DataError, match="changed while being read"):
        prepare_corpus(config)
    assert visible(config.folder) == []


def test_unusable_text_is_refused_with_the_reasons(config, tmp_path):
    nothing = write_lines(tmp_path / "n", ["", "a"], ["b", " "])
    with pytest.raises(DataError, match=r"data\.train=.*none of 2 pairs is usable: 2 empty "):
        prepare_corpus(replace(config, train=nothing))
    with pytest.raises(DataError, match=r"data\.val=.*none of 2 pairs"):
        prepare_corpus(replace(config, val=nothing))
    with pytest.raises(
        DataError,
        match=r"none of 211 pairs is usable: 211 too_long .*; correct the text, or raise data\.max_length=1 or",
    ):
        prepare_corpus(replace(config, max_length=1))
    with pytest.raises(DataError, match=r"data\.vocab_size=9000: this text supports at most"):
        prepare_corpus(replace(config, vocab_size=9000))


def test_a_few_bad_lines_are_dropped_but_another_encoding_is_refused(config, tmp_path):
    path = tmp_path / "train.de"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([b"\xe4", *lines[1:]]))
    assert prepare_corpus(config).report["train"]["dropped"] == {"not_utf8": 1}
    path.write_bytes(path.read_bytes()[1:].decode().encode("iso-8859-1"))
    with pytest.raises(DataError, match=r"are not UTF-8 .*iconv"):
        prepare_corpus(config)


def test_another_encoding_is_found_in_the_first_pairs_before_anything_is_learnt(
    config, tmp_path, monkeypatch
):
    check_text(config)
    path = tmp_path / "train.de"
    lines = path.read_bytes().split(b"\n")
    monkeypatch.setattr(prepare_module, "FIRST_PAIRS", 100)
    path.write_bytes(b"\n".join([b"\xe4"] * 25 + lines[25:]))
    check_text(config)  # a quarter
    path.write_bytes(b"\n".join([b"\xe4"] * 26 + lines[26:]))
    with pytest.raises(
        DataError, match=r"26 of 100 pairs read are not UTF-8 \(the first: .*line 1\); .*iconv"
    ):
        check_text(config)
    assert not Path(config.folder).exists()


def test_copies_for_other_processes_are_small_and_map_the_same_files(config):
    found = prepare_corpus(config)
    pickled = pickle.dumps((found, found.train))
    assert len(pickled) < 2000
    copy, split = pickle.loads(pickled)
    assert copy.tokenizer.fingerprint == found.tokenizer.fingerprint
    assert np.array_equal(split.src.flat, found.train.src.flat)
    assert rows(copy.val) == rows(found.val)
    with pytest.raises(ValueError, match="read-only"):
        split.src.flat[0] = 1


def forged(folder: Path, name: str, content: bytes) -> None:
    """Exchanges a file of a prepared corpus and its size and checksum in the manifest."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    checksum = hashlib.sha256(content).hexdigest()
    manifest["files"][name] = {"size": len(content), "sha256": checksum}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.quick("train.tgt.bin", "train.src.npy", "tokenizer.json")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("train.tgt.bin", "ids outside the vocabulary of 300"),
        ("val.src.bin", "ids outside the vocabulary of 300"),
        ("train.src.npy", "not in order"),
        ("val.tgt.npy", "does not hold the starts"),
        ("tokenizer.json", "tokenizer.json is not that of"),
        ("report.json", "does not count the 211 pairs of train"),
    ],
)
def test_a_corpus_whose_checksums_are_right_but_whose_content_is_not_is_built_again(
    config, tmp_path, caplog, name, reason
):
    found = prepare_corpus(config)
    before, path = contents(found.folder), found.folder / name
    if name == "train.tgt.bin":
        content = found.train.tgt.flat.copy()
        content[7] = 300
        forged(found.folder, name, content.tobytes())
    elif name == "val.src.bin":
        content = found.val.src.flat.copy()
        content[-1] = 0
        forged(found.folder, name, content.tobytes())
    elif name == "train.src.npy":
        starts = np.load(path)
        starts[[3, 4]] = starts[[4, 3]]
        forged(found.folder, name, saved(starts))
    elif name == "val.tgt.npy":
        forged(found.folder, name, saved(np.load(path).astype(float)))
    elif name == "report.json":
        report = json.loads(path.read_text())
        report["train"]["kept"] += 1
        forged(found.folder, name, json.dumps(report).encode())
    else:
        english = [f"the {word} sat on the mat with that other {word}" for word in WORDS * 20]
        other = write_lines(tmp_path / "other", english, english)
        tokenizer = prepare_corpus(replace(config, train=other)).tokenizer
        assert tokenizer.vocab_size == 300
        forged(found.folder, name, tokenizer.to_json().encode())
    assert contents(prepare_corpus(config).folder) == before
    assert reason in caplog.text
    assert "building it again" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"dropped": {}, "read": 9},
        {"dropped": [1]},
        {"dropped": {"empty": "x"}},
        {"dropped": None},
        {"corpora": [5, 7, 1]},
        {"corpora": 3},
        {"src_tokens": -1},
        {"tgt_tokens": None},
        {"kept": "211"},
    ],
)
def test_a_corpus_whose_report_says_other_numbers_with_a_right_checksum_is_not_opened(
    config, changes
):
    found = prepare_corpus(config)
    report = json.loads((found.folder / "report.json").read_text())
    report["train"] |= changes
    forged(found.folder, "report.json", json.dumps(report).encode())
    assert "report.json" in str(open_verified(found.folder))
    del report["train"]["dropped"]
    forged(found.folder, "report.json", json.dumps(report).encode())
    assert "report.json" in str(open_verified(found.folder))


def test_a_manifest_without_checksums_of_all_files_is_not_believed(config):
    folder = prepare_corpus(config).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    for files in ({}, {"tokenizer.json": manifest["files"]["tokenizer.json"]}):
        (folder / "manifest.json").write_text(json.dumps(manifest | {"files": files}))
        assert open_verified(folder) == "manifest.json lacks files of the corpus"


def test_the_command_refuses_a_key_that_is_given_twice():
    refusal = "data.vocab_size: given 2 times, 300 and 310; leave one out"
    with pytest.raises(ConfigError, match=f"^{re.escape(refusal)}$"):
        prepare(["data=files", "data.vocab_size=300", "data.vocab_size=310"])
