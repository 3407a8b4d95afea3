"""What is answered to requests: LibreTranslate's API for one model."""

import asyncio

from starlette.datastructures import State
from starlette.exceptions import HTTPException

from aiayn.inference.translator import Translation, Translator
from aiayn.server.batching import Batcher
from aiayn.server.fields import Fields, count_of, line_of, texts_of
from aiayn.server.options import ServeOptions
from aiayn.server.service import Service
from aiayn.server.words import WordAttention, word_attention

# Languages by their English names, for clients that show them; others keep their code.
NAMES = {"cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian"}

Answer = dict[str, object]


class Answers:
    """Methods take the fields of a request, and the state in which they note how much text it has."""

    def __init__(self, service: Service, run: str, options: ServeOptions, batcher: Batcher):
        """`run` is the name that the page shows."""
        self.service = service
        self.run = run
        self.options = options
        self.batcher = batcher

    def languages(self) -> list[Answer]:
        """The source language, which can be translated into the target language, and that."""
        source, target = self.service.now.translator.languages
        return [_language(source) | {"targets": [target]}, _language(target) | {"targets": []}]

    def settings(self) -> Answer:
        """What LibreTranslate tells its clients, and for our page the run and the number of alternatives."""
        served = self.service.now
        source, target = served.translator.languages
        return {
            "apiKeys": bool(served.api_keys),
            "keyRequired": bool(served.api_keys),
            "charLimit": -1,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "suggestions": False,
            "frontendTimeout": 500,
            "language": {"source": _language(source), "target": _language(target)},
            "run": self.run,
            "alternatives": _max_alternatives(served.translator),
        }

    async def translate(self, fields: Fields, state: State) -> Answer:
        """LibreTranslate's POST /translate: a text or a list of texts, each of one line or more."""
        translator = self.service.now.translator
        texts, n = texts_of(fields), 1 + count_of(fields, "alternatives", _max_alternatives(translator))
        _check_languages(fields, translator.languages)
        text_lines = [text.split("\n") for text in texts]
        lines = [line for lines in text_lines for line in lines]
        if len(lines) > self.options.max_waiting:
            raise HTTPException(413, f"{len(lines)} lines; at most {self.options.max_waiting} are translated at once")
        await self._subwords(translator, lines, state)
        found = iter(await self.batcher.n_best(translator.n_best, lines, n))
        ranked = [_ranked([next(found) for _ in lines], n) for lines in text_lines]
        is_list = isinstance(fields["q"], list)
        answer: Answer = {"translatedText": [best for best, *_ in ranked] if is_list else ranked[0][0]}
        if n > 1:
            answer["alternatives"] = [others for _, *others in ranked] if is_list else ranked[0][1:]
        if fields["source"] == "auto":
            [detected] = _detected(translator)
            answer["detectedLanguage"] = [detected for _ in texts] if is_list else detected
        return answer

    async def detect(self, fields: Fields, state: State) -> list[Answer]:
        """LibreTranslate's POST /detect. A run has one source language, so that is the answer to every text."""
        texts_of(fields)
        return _detected(self.service.now.translator)

    async def attention(self, fields: Fields, state: State) -> WordAttention:
        """Where the model looks in the line `q` as it writes the line `translation`: see `word_attention`."""
        translator = self.service.now.translator
        lines = [line_of(fields, "q"), line_of(fields, "translation")]
        src_ids, tgt_ids = await self._subwords(translator, lines, state)
        return await self.batcher.call(word_attention, translator, src_ids, tgt_ids)

    async def _subwords(self, translator: Translator, lines: list[str], state: State) -> list[list[int]]:
        """Returns the subwords of lines. Raises DataError for what is not text, and 413 for a line that is too long."""
        limits = (self.options.max_line, translator.longest_source)
        most = min(limit for limit in limits if limit is not None)
        found = await asyncio.to_thread(translator.source_ids, lines)
        for number, ids in enumerate(found, 1):
            if len(ids) > most:
                raise HTTPException(413, f"line {number} has {len(ids)} subwords, at most {most} are allowed; split it")
        state.lines, state.subwords = len(lines), sum(map(len, found))
        return found


def _check_languages(fields: Fields, languages: tuple[str, str]) -> None:
    source, target = fields.get("source"), fields.get("target")
    if source not in (languages[0], "auto") or target != languages[1]:
        pair = f"source {languages[0]} (or auto) and target {languages[1]}"
        raise HTTPException(400, f"source {source!r:.40} and target {target!r:.40}: this server has {pair}")
    if fields.get("format") not in (None, "text"):
        raise HTTPException(400, f"format {fields['format']!r:.40}: this server translates plain text; send text")


def _max_alternatives(translator: Translator) -> int:
    return translator.search.beam_size - 1


def _detected(translator: Translator) -> list[Answer]:
    """The language in the form of a detection; its confidence says that nothing was detected."""
    return [{"language": translator.languages[0], "confidence": 0.0}]


def _language(code: str) -> Answer:
    return {"code": code, "name": NAMES.get(code, code)}


def _ranked(lines: list[list[Translation]], n: int) -> list[str]:
    """Returns the best translation of a text, then others; the k-th has the k-th of every line, or else its last."""
    texts = ["\n".join(found[min(k, len(found) - 1)].text for found in lines) for k in range(n)]
    return list(dict.fromkeys(texts))  # different subwords may spell the same text
