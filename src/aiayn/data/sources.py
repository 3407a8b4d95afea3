"""Where text comes from: files, a data set of the Hugging Face hub, or the built-in phrasebook.

Files have one sentence a line, a file for each language, or both languages in one file: a table
(.tsv, .csv, .jsonl), a translation memory (.tmx), a catalogue of messages (.po) or XLIFF. All of
them may be compressed (.gz, .bz2, .xz).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from aiayn import phrasebook
from aiayn.config.data import DataOptions
from aiayn.config.rules import listed, tagged
from aiayn.data.cleaning import normalise
from aiayn.data.raw_text import RawPair, RawText, remark
from aiayn.data.text_files import OPENERS, lines, scan, suffix
from aiayn.doors import is_behind, load_from
from aiayn.errors import ConfigError, DataError, counted, summary_of

REMEDY = (
    "download it elsewhere and set data.hub_path=FOLDER, or use text files: data=files "
    "data.train=PREFIX"
)


def text_of(config: DataOptions, split: str) -> RawText:
    """Returns the text of a split, "train", "val" or "test". Raises DataError if its option is not
    set.
    """
    key, value, langs = f"data.{split}", getattr(config, split), (config.src_lang, config.tgt_lang)
    if value is None:
        raise DataError(f"{key} is not set; set {key}=PREFIX (files) or {key}=SPLIT (hub)")
    if config.source == "files":
        return FileText(key, listed(value), langs, config.max_expansion)
    if config.source == "hub":
        # The options require a path with this source
        data_set = config.hub_path or "", config.hub_name, config.hub_revision
        return HubText(key, listed(value), langs, *data_set)
    return PhrasebookText(key, [split], langs)


# Files.


def is_pair_file(name: str) -> bool:
    """Returns whether a name has the suffix of a file of pairs."""
    return is_behind("aiayn.readers", suffix(name))


@dataclass(eq=False)
class FileText(RawText):
    """One or several names, each of a file of pairs, or the prefix of a file of each language."""

    max_expansion: int | None = None

    @cached_property
    def files(self) -> list[tuple[str, tuple[Path, ...]]]:
        """Returns for each name its tag, and one file of pairs, or a source and a target file if
        the name is their prefix.

        These are `PREFIX.LANG`, or the same compressed. Raises DataError for missing files, unequal
        line counts, and if there is no line at all.
        """
        files = [(tag, self._files(name)) for tag, name in map(tagged, self.names)]
        # Each is scanned, because what holds too much must not be read later
        n_lines = {str(path): self._scan(path)[0] for _, paths in files for path in paths}
        if not sum(n_lines.values()):
            raise DataError(f"{self.key}: no text in {', '.join(n_lines)}; name files with text")
        return files

    def _files(self, name: str) -> tuple[Path, ...]:
        if remedy := OTHER_FORMATS.get(suffix(name)):
            raise DataError(f"{self.key}={name}: {remedy}")
        if is_pair_file(name):
            return (Path(name).expanduser(),)
        src, tgt = (self._language_file(name, lang) for lang in self.langs)
        n_src, n_tgt = self._scan(src)[0], self._scan(tgt)[0]
        if n_src != n_tgt:
            for path in (src, tgt):
                next(lines(path), None)  # raises a clearer error for a file in UTF-16
            raise DataError(
                f"{self.key}={name}: {src} has {counted(n_src, 'line')} and {tgt} has {n_tgt:,}: "
                "line N of one must translate line N of the other (only LF ends a line)"
            )
        return src, tgt

    def _language_file(self, prefix: str, lang: str) -> Path:
        """Returns the file of a language. Raises DataError that says what stands there instead."""
        plain = Path(f"{prefix}.{lang}").expanduser()
        candidates = [Path(f"{plain}{ending}") for ending in ("", *OPENERS)]
        for path in candidates:
            if path.exists():
                return path
        names = {path.name.casefold() for path in candidates}
        similar = [path for path in plain.parent.glob("*") if path.name.casefold() in names]
        others = [Path(f"{plain}.{ending}") for ending in COMPRESSIONS]
        codes, endings = ("|".join(map(re.escape, values)) for values in (self.langs, OPENERS))
        if Path(prefix).expanduser().is_dir():
            fault = f"is a folder; name the files in it, without .{lang}"
        elif compressed := [path for path in others if path.exists()]:
            fault = f"no file {plain}; decompress {compressed[0]}"
        elif similar:
            fault = f"no file {plain}, but {similar[0]} exists; rename it, or change the option"
        elif extension := re.search(rf"\.({codes})({endings})?$", prefix):
            rest = prefix[: extension.start()]
            fault = f"leave out {extension[0]}; {self.key}={rest} names the files of both languages"
        elif missing := [path for path in plain.parents if not path.exists()]:
            fault = f"no file {plain} or {plain}.gz; there is no folder {missing[-1]}"
        else:
            fault = f"no file {plain} or {plain}.gz; {self.key} is the file name without .{lang}"
        raise DataError(f"{self.key}={prefix}: {fault}")

    def _scan(self, path: Path) -> tuple[int, str]:
        return scan(path, max_expansion=self.max_expansion)

    def pairs(self) -> Iterator[RawPair]:
        # `self.files` is evaluated here, so that wrong names are reported before the first pair.
        return chain.from_iterable(
            self._pairs(number, tag, paths) for number, (tag, paths) in enumerate(self.files)
        )

    def _pairs(self, number: int, tag: str, paths: tuple[Path, ...]) -> Iterator[RawPair]:
        """Yields the pairs of a name with its number and its tag, which blank sources do not
        get.
        """
        if len(paths) == 1:
            pairs = _read_pair_file(paths[0], *self.langs)
        else:
            file, rows = " and ".join(map(str, paths)), zip(*map(lines, paths), strict=True)
            pairs = (RawPair(file, line, src, tgt) for line, (src, tgt) in enumerate(rows, 1))
        for pair in pairs:
            if number or tag:
                is_blank = not tag or not normalise(pair.src.decode(errors="replace"))
                start = b"" if is_blank else f"{tag} ".encode()
                pair = pair._replace(src=start + pair.src, corpus=number)
            yield pair

    def identity(self) -> Any:
        identities = []
        for tag, (path, *others) in self.files:
            names = [tag, "" if others else suffix(path.name)]
            digests = [self._scan(file)[1] for file in (path, *others)]
            identities.append([*filter(None, names), *digests])
        return identities

    def count(self) -> int:
        return sum(
            self._scan(path)[0] if others else sum(1 for _ in _read_pair_file(path, *self.langs))
            for _, (path, *others) in self.files
        )

    def untagged(self) -> list[RawText]:
        return [
            FileText(self.key, [name], self.langs, self.max_expansion)
            for name in self.names
            if not tagged(name)[0]
        ]


def _read_pair_file(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Streams the rows of a file of pairs; a row that is not a pair has a flaw.

    Raises DataError with file and line if the format is wrong, if over 5 % of the rows are not
    pairs, and if there is no pair at all; ConfigError if a library is missing.
    """
    ending = suffix(path.name)
    try:
        read = load_from("aiayn.readers", ending)
    except ImportError as error:
        raise ConfigError(
            f".{ending} files: {error.name} is not installed: pip install 'aiayn[text]'"
        ) from error
    rows, bad, first = 0, 0, []
    for pair in read(path, src_lang, tgt_lang):
        rows += 1
        if pair.flaw:
            bad += 1
            first = first or [pair]
        yield pair
    if rows == bad:
        raise DataError(f"{path}: no pairs of {src_lang} and {tgt_lang}{remark(first)}")
    if bad >= 20 and bad > 0.05 * rows:
        raise DataError(
            f"{path}: {bad} of {rows} rows are not pairs, the first{remark(first)}; correct or "
            "remove them"
        )


# Formats that are not read, by suffix, and what to do instead.
COMPRESSIONS = ("zst", "lz4", "lzma", "7z")
TABLE = "spreadsheets are not supported: save this one as comma-separated text (.csv)"
OFFICE = "office documents are not supported: save the text, one sentence per line, or as .html"
OTHER_FORMATS = {
    **dict.fromkeys(("xlsx", "xls", "ods"), TABLE),
    **dict.fromkeys(("docx", "doc", "odt", "rtf", "pptx", "odp", "epub", "pdf"), OFFICE),
    "sdlxliff": "this format is not supported: export XLIFF (.xliff) or a translation memory "
    "(.tmx)",
    "zip": "archives are not supported: extract this one",
    **dict.fromkeys(COMPRESSIONS, "this compression is not supported: decompress the file"),
    "parquet": (
        "Parquet files are not supported: data.source=hub data.hub_path=FOLDER reads a folder of "
        "them"
    ),
}


class PhrasebookText(RawText):
    """The generated English-German corpus that comes with the program."""

    def pairs(self) -> Iterator[RawPair]:
        if set(self.langs) != {"en", "de"}:
            raise DataError(
                f"data.src_lang={self.langs[0]}, data.tgt_lang={self.langs[1]}: the phrasebook "
                "has en and de only; set these, or use your own text with data=files"
            )
        for number, (en, de) in enumerate(phrasebook.pairs(self.names[0]), 1):
            src, tgt = (en, de) if self.langs[0] == "en" else (de, en)
            yield RawPair(self.option, number, src.encode(), tgt.encode())

    def identity(self) -> Any:
        return ["phrasebook", phrasebook.VERSION]


@dataclass(eq=False)
class HubText(RawText):
    """One or several splits of a data set of the Hugging Face hub, or of a local folder with the
    same layout.

    On the hub it is identified by name and revision, so that opening a prepared corpus needs no
    network.
    """

    hub_path: str
    hub_name: str | None
    revision: str | None

    def __post_init__(self) -> None:
        folder = Path(self.hub_path).expanduser()
        self.folder = folder if folder.is_dir() else None  # of a local data set
        if self.folder is None and re.match(r"[/.~]|.*/.*/", self.hub_path):
            raise DataError(f"data.hub_path={self.hub_path}: no such folder; correct the path")
        if self.folder and self.hub_name and (folder / self.hub_name).is_dir():
            # A local copy of WMT14 has a folder for each configuration.
            self.folder, self.hub_name = folder / self.hub_name, None

    def pairs(self) -> Iterator[RawPair]:
        rows = self._rows([self._load(name) for name in self.names])
        return (RawPair(self.option, number, src, tgt) for number, (src, tgt) in enumerate(rows, 1))

    def identity(self) -> Any:
        if self.folder is None:
            return [self.names, self.hub_path, self.hub_name, self.revision]
        visible = []
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and not name.startswith("."):
                visible.append([name, scan(path, is_text=False)[1]])
        return [self.names, visible, *([self.hub_name] if self.hub_name else [])]

    def _load(self, name: str) -> Any:
        """Opens one split with the library `datasets`. Raises DataError if that fails."""
        import datasets.config

        path, config = self.hub_path, self.hub_name
        try:
            if self.folder:  # read in place, without a second copy in the library's cache
                return datasets.load_dataset(str(self.folder), config, split=name, streaming=True)
            _look_only_into_the_cache_if_offline(path)
            return datasets.load_dataset(path, config, split=name, revision=self.revision)
        except Exception as error:  # datasets, pyarrow and the file system raise many kinds
            reason, remedy = summary_of(error), REMEDY
            if self.folder:
                remedy = "the folder must have the same layout as on the hub"
            elif datasets.config.HF_HUB_OFFLINE:
                reason = "the hub is offline, and its local cache lacks the data set"
            elif self.revision:
                remedy = (
                    f"if the data set has no commit {self.revision}, set data.hub_revision=null; "
                    f"or {REMEDY}"
                )
            raise DataError(
                f"data.hub_path={self.hub_path}, split {name}: {reason}; {remedy}"
            ) from error

    def _rows(self, splits: list[Any]) -> Iterator[tuple[bytes, bytes]]:
        empty = True
        for split in splits:
            try:
                # Whole Arrow batches are ten times as fast as single rows.
                for table in split.with_format("arrow").iter(batch_size=10_000):
                    sides = [self._texts(table, lang) for lang in self.langs]
                    empty = empty and not sides[0]
                    yield from zip(*sides, strict=True)
            except Exception as error:  # `datasets` raises many kinds, as in _load
                raise DataError(
                    f"data.hub_path={self.hub_path}: cannot be read ({summary_of(error)})"
                ) from error
        if empty:
            raise DataError(
                f"data.hub_path={self.hub_path}: split {', '.join(self.names)} is empty; "
                "choose another split or data set"
            )

    def _texts(self, table: Any, lang: str) -> list[bytes]:
        """Returns the column of a language: a field of `translation` (WMT14), or a column of its
        name (Multi30k).
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {name: table.column(name) for name in table.column_names}
        if "translation" in columns:
            fields = [field.name for field in columns["translation"].type]
            columns = dict(zip(fields, columns["translation"].flatten(), strict=True))
        if lang not in columns:
            raise DataError(
                f"no column {lang} among {', '.join(columns)}; set data.src_lang and data.tgt_lang"
            )
        # A sentence is one line: a line feed inside it would become two lines when hypotheses are
        # written.
        texts = pc.fill_null(columns[lang], "").cast(pa.large_binary()).to_pylist()
        return [text.replace(b"\n", b" ") for text in texts]


def _look_only_into_the_cache_if_offline(name: str) -> None:
    """Tests the connection with one request, because the library itself would retry for 23
    seconds.
    """
    import datasets.config
    import huggingface_hub.constants
    from huggingface_hub.errors import HfHubHTTPError

    try:
        huggingface_hub.HfApi().dataset_info(name, timeout=3)
    except (HfHubHTTPError, ValueError):
        return  # the hub answers, or the name is malformed: `load_dataset` says what is wrong
    except Exception:  # whatever the HTTP client raises without a connection
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
