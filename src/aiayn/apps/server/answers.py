"""Answers requests: LibreTranslate's API for one model."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from anyio import CapacityLimiter
from starlette.datastructures import State
from starlette.exceptions import HTTPException

from aiayn.apps.documents.document import READERS
from aiayn.apps.documents.placement import Attention
from aiayn.apps.documents.texts import CutSentences, Texts
from aiayn.apps.server.batching import QUEUED_LINES, Batcher, cost
from aiayn.apps.server.document_process import (
    MAX_HTML,
    MAX_TAGS,
    T,
    as_upload,
    check_count,
    in_process,
    read_upload,
    write_upload,
)
from aiayn.apps.server.metrics import Metrics
from aiayn.apps.server.options import ServeOptions
from aiayn.apps.server.requests import (
    Fields,
    alternatives_of,
    file_of,
    is_language,
    line_of,
    texts_of,
)
from aiayn.apps.server.service import Service
from aiayn.data.languages import LANGUAGE_CODES, best_match, short_code, tags_of_targets
from aiayn.data.text_files import SURROGATE
from aiayn.data.tokenizer import SubwordIds
from aiayn.errors import DataError
from aiayn.search.line_translator import LineTranslator
from aiayn.search.translations import Translation

ENTRY = 1000  # bytes that a kept file takes besides its content and name
PROCESSES = 2  # that read documents and long texts; others wait
MAX_FILES = 64 << 20  # bytes of translated files that are kept; the oldest go first

Answer = dict[str, object]
Encode = Callable[[list[str]], SubwordIds]


def keep_file(files: OrderedDict[str, bytes], address: str, content: bytes) -> None:
    """Adds a file to those that are kept, and removes the oldest ones that exceed MAX_FILES."""
    files[address] = content
    # Names and entries count, too: empty files would otherwise gather without limit.
    size = sum(len(name) + len(kept) + ENTRY for name, kept in files.items())
    while size > MAX_FILES and len(files) > 1:
        name, removed = files.popitem(last=False)
        size -= len(name) + len(removed) + ENTRY


@dataclass
class Answers:
    """Methods take the fields of a request, and the state in which they note how much text they
    translate.
    """

    service: Service
    run: str  # the name that the page shows
    options: ServeOptions
    batcher: Batcher
    metrics: Metrics
    processes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PROCESSES))
    # Translated ones, by their secret addresses
    files: OrderedDict[str, bytes] = field(default_factory=OrderedDict)

    def languages(self) -> list[Answer]:
        """Returns the source language with the languages that it is translated into, and these
        languages.
        """
        translator = self.service.served.translator
        targets = list(_targets(translator))
        source = _language(translator.languages[0]) | {"targets": targets}
        return [source, *(_language(target) | {"targets": []} for target in targets)]

    def settings(self) -> Answer:
        """Returns what LibreTranslate tells its clients, and for our page the run and the number of
        alternatives.
        """
        served = self.service.served
        source, target = served.translator.languages
        return {
            "apiKeys": bool(served.api_keys),
            "keyRequired": bool(served.api_keys),
            "charLimit": -1,
            "filesTranslation": True,
            "supportedFilesFormat": [f".{suffix}" for suffix in READERS],
            "suggestions": False,
            "frontendTimeout": 500,
            "language": {"source": _language(source), "target": _language(target)},
            "run": self.run,
            "alternatives": served.translator.search.beam_size - 1,
        }

    async def translate(self, fields: Fields, state: State) -> Answer:
        """Answers LibreTranslate's POST /translate: a text or a list of texts, of one or more
        sentences each.
        """
        translator = self.service.served.translator
        lines = texts_of(fields, self.options.max_waiting)
        n = 1 + alternatives_of(fields, translator.search.beam_size - 1)
        is_html, target = fields.get("format") == "html", _target_of(fields, translator)
        length = sum(map(len, lines))
        texts = await self._apart(
            length,
            _cut,
            lines,
            translator.languages[0],
            is_html,
            translator.tokenizer.source.symbols,
            _targets(translator)[target],
            self.options.max_waiting,
        )
        columns = []
        for best in await self._searched(translator, texts.sentences, n, state):
            attention = await self._attention(translator, texts.sentences, best)
            column, placement_counts = await self._apart(
                length, texts.restore, [translation.text for translation in best], attention
            )
            self.metrics.on_markup(placement_counts)
            columns.append(column)
        # Different subwords may spell the same text.
        ranked = [list(dict.fromkeys(of_line)) for of_line in zip(*columns, strict=True)]
        answer: dict[str, list] = {"translatedText": [best for best, *_ in ranked]}
        if n > 1:
            answer["alternatives"] = [others for _, *others in ranked]
        if fields["source"] == "auto":
            answer["detectedLanguage"] = _detected(translator) * len(lines)
        if isinstance(fields["q"], list):
            return {**answer}
        return {name: of_text for name, [of_text] in answer.items()}

    async def translate_file(self, fields: Fields, state: State) -> Answer:
        """Answers LibreTranslate's POST /translate_file, a document, with the address of its
        translation.
        """
        translator = self.service.served.translator
        name, content = await file_of(fields)
        target = _target_of(fields, translator)
        langs = (translator.languages[0], target)
        document = as_upload(name, content, langs, _targets(translator)[target])
        sentences = await in_process(
            self.processes, read_upload, document, self.options.max_waiting
        )
        [best] = await self._searched(translator, sentences, 1, state)
        attention = await self._attention(translator, sentences, best)
        translated, placement_counts, remarks = await in_process(
            self.processes, write_upload, document, [line.text for line in best], attention
        )
        self.metrics.on_markup(placement_counts)
        address = f"{secrets.token_urlsafe(16)}.{document.name}"
        keep_file(self.files, address, translated)
        answer: Answer = {"translatedFileUrl": f"{state.base_url}download_file/{quote(address)}"}
        return answer | ({"remarks": remarks} if remarks else {})

    async def _apart(self, length: int, work: Callable[..., T], *arguments: object) -> T:
        """Returns work(*arguments), computed beside the server's own thread: for texts of more than
        MAX_HTML characters in another process, because threads keep each other waiting and cannot
        be ended. Raises as `in_process` does.
        """
        if length > MAX_HTML:
            return await in_process(self.processes, work, *arguments)
        return await asyncio.to_thread(work, *arguments)

    async def _searched(
        self, translator: LineTranslator, sentences: CutSentences, n: int, state: State
    ) -> list[list[Translation]]:
        """Returns the best translation of every sentence, the second of every sentence, and so on
        to the n-th.

        A sentence with fewer translations has its last one there. Raises what `_subwords` raises.
        """
        lines = sentences.lines
        sizes = [len(ids) for ids in await self._subwords(lines, translator, translator.source_ids)]
        state.lines, state.subwords = len(lines), sum(sizes)
        costs = list(map(cost, sizes))
        translations = await self.batcher.n_best(translator.n_best, lines, n, costs)
        return [[best[min(k, len(best) - 1)] for best in translations] for k in range(n)]

    async def _attention(
        self, translator: LineTranslator, sentences: CutSentences, translations: list[Translation]
    ) -> list[Attention]:
        """Returns the attention of the sentences with mark-up."""
        attention: list[Attention] = []
        for start in range(0, len(sentences.marked), QUEUED_LINES):
            numbers = sentences.marked[start : start + QUEUED_LINES]
            attention += await self.batcher.call(
                sentences.attend, translator, translations, numbers
            )
        return attention

    async def detect(self, fields: Fields, state: State) -> list[Answer]:
        """Answers LibreTranslate's POST /detect with the run's only source language."""
        texts_of(fields, self.options.max_waiting)
        return _detected(self.service.served.translator)

    async def attention(self, fields: Fields, state: State) -> Answer:
        """Returns where the model looks in the line `q` while it writes the line `translation`: see
        `word_attention`.
        """
        translator = self.service.served.translator
        lines = [line_of(fields, "q"), line_of(fields, "translation")]
        target = (
            _target_of({"source": "auto", **fields}, translator)
            if "target" in fields
            else translator.languages[1]
        )
        tag = _targets(translator)[target]
        if tag and lines[0].split()[0] not in translator.tokenizer.source.symbols:
            lines[0] = f"{tag} {lines[0]}"

        def encode(lines: list[str]) -> SubwordIds:
            return translator.source_ids(lines[:1]) + translator.target_ids(lines[1:], 2)

        src_ids, tgt_ids = await self._subwords(lines, translator, encode)
        return await self.batcher.call(_word_attention, translator, src_ids, tgt_ids)

    async def _subwords(
        self, lines: list[str], translator: LineTranslator, encode: Encode
    ) -> SubwordIds:
        """Returns the subwords of lines. Raises DataError for invalid text, and 413 for a line that
        is too long.
        """
        limits = (self.options.max_line, translator.longest_source)
        most = min(limit for limit in limits if limit is not None)
        ids_by_line = await asyncio.to_thread(encode, lines)
        for number, ids in enumerate(ids_by_line, 1):
            if len(ids) > most:
                raise HTTPException(
                    413,
                    f"sentence {number} has {len(ids)} subwords, at most {most} are allowed; "
                    "split it",
                )
        return ids_by_line


def _word_attention(translator: LineTranslator, src_ids: list[int], tgt_ids: list[int]) -> Answer:
    # torch, which translation does without, takes seconds to import: not in the server's own thread
    from aiayn.search.alignment import word_attention

    return word_attention(translator, src_ids, tgt_ids)


def _cut(
    texts: list[str], language: str, is_html: bool, symbols: list[str], tag: str, most: int
) -> Texts:
    """Cuts texts into sentences. Raises DataError for what is not text, 413 for HTML too large and
    for more than `most` sentences.
    """
    for number, text in enumerate(texts, 1):
        if SURROGATE.search(text):
            raise DataError(
                f"text {number} is not valid text: it contains a lone surrogate; correct it"
            )
        if is_html and (len(text) > MAX_HTML or text.count("<") + text.count("&lt;") > MAX_TAGS):
            limits = f"{MAX_HTML:,} characters and {MAX_TAGS:,} tags"
            raise HTTPException(
                413,
                f"an HTML text may have at most {limits}; send it in parts, or as a list of texts",
            )
    cut = Texts(texts, language, is_html, True, is_html=is_html, symbols=symbols, tag=tag)
    check_count(cut.sentences, most)
    return cut


def _targets(translator: LineTranslator) -> dict[str, str]:
    return tags_of_targets(translator.tokenizer.source.symbols, translator.languages[1])


def _target_of(fields: Fields, translator: LineTranslator) -> str:
    """Returns the target language that a request names. Raises 400 for other languages, and other
    formats.
    """
    source, target = fields.get("source"), fields.get("target")
    src_lang, targets = translator.languages[0], list(_targets(translator))
    matching_targets = [code for code in targets if is_language(target, code, src_lang)]
    if not matching_targets or not (source == "auto" or is_language(source, src_lang, targets[0])):
        pair = f"{src_lang} (or auto) to {' or '.join(targets)}"
        raise HTTPException(
            400, f"source {source!r:.40} and target {target!r:.40}: this server translates {pair}"
        )
    if fields.get("format") not in (None, "", "text", "html"):
        raise HTTPException(400, f"format {fields['format']!r:.40}: choose text or html")
    return best_match(str(target), tuple(matching_targets)) or matching_targets[0]


def _detected(translator: LineTranslator) -> list[Answer]:
    """Returns the language in the form of a detection; its confidence says that nothing was
    detected.
    """
    return [{"language": translator.languages[0], "confidence": 0.0}]


def _language(code: str) -> Answer:
    names = {code: name.title() for name, code in LANGUAGE_CODES.items()}  # others keep their code
    return {"code": code, "name": names.get(short_code(code), code)}
