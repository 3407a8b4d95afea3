"""LibreTranslate's API: what it answers, and what it refuses."""

import asyncio
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from time import perf_counter, process_time
from types import SimpleNamespace
from unittest.mock import AsyncMock
from urllib.parse import quote, urlencode

import pytest
from anyio import BrokenWorkerProcess, CapacityLimiter
from applications import slow_but, small_model
from psutil import Process
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.testclient import TestClient
from texts import DOCUMENTS

from aiayn.apps.documents import texts
from aiayn.apps.documents.document import parse_document
from aiayn.apps.documents.markup import parse_markup
from aiayn.apps.documents.texts import translate_texts
from aiayn.apps.server import answers as module
from aiayn.apps.server import document_process, requests
from aiayn.apps.server.app import make_app, while_connected
from aiayn.apps.server.batching import Batcher, QueueFullError
from aiayn.apps.server.metrics import Metrics, _address
from aiayn.apps.server.options import ServeOptions
from aiayn.apps.server.requests import DRAINED, MAX_BRACKETS, SHORT, read_fields
from aiayn.apps.server.service import Served, Service
from aiayn.data.tokenizer import Tokenizer
from aiayn.model.transformer import Transformer
from aiayn.search.translations import Translation
from aiayn.search.translator import Translator

PAIR = {"source": "en", "target": "de"}


def client(
    translator: Translator, keys: Sequence[str] = (), raises: bool = True, **options
) -> TestClient:
    service = Service(lambda: Served(translator, list(keys)))
    app = make_app(service, "tiny", ServeOptions(**options), Metrics())
    return TestClient(app, base_url="http://localhost:8000", raise_server_exceptions=raises)


@pytest.fixture
def http(translator):
    with client(translator, max_body=5000, max_line=20, max_waiting=12) as found:
        yield found


def posted(http: TestClient, **fields):
    answer = http.post("/translate", json=PAIR | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_texts_are_translated_sentence_by_sentence_and_keep_the_blanks_between(http, best):
    one, two, three = "the old house", "two cats\r\n\n  the man ", "The man. The house!  Two?"
    expected = f"{best('two cats')}\r\n\n  {best('the man')} "
    paragraph = f"{best('The man.')} {best('The house!')}  {best('Two?')}"

    assert posted(http, q=one) == {"translatedText": best(one)}
    assert posted(http, q=two) == {"translatedText": expected}
    assert posted(http, q=[one, two, "", " \n", three]) == {
        "translatedText": [best(one), expected, "", " \n", paragraph]
    }


def test_tags_of_html_are_kept_and_what_they_hold_is_translated(http, translator, best):
    html = "<p>the old <b>house</b> &amp; two</p><script>the</script> <i>two cats</i>"

    found = posted(http, q=html, format="html")["translatedText"]

    assert [found] == translate_texts(
        translator, [parse_markup(html, is_html=True)], paragraphs=True
    )[0]
    assert sorted(re.findall("<[^>]*>", found)) == sorted(re.findall("<[^>]*>", html))
    assert "<script>the</script>" in found
    assert posted(http, q=["two", "<br>"], format="html")["translatedText"] == [
        escape(best("two"), quote=False),
        "<br>",
    ]
    assert posted(http, q="the &amp; <b>two", format="text")["translatedText"] == best(
        "the &amp; <b>two"
    )


def test_alternatives_of_html_have_the_tags_too_and_places_are_counted(http):
    answer = posted(http, q="<b>the</b> house {name}", format="html", alternatives=2)

    assert all(
        text.count("<b>") == text.count("</b>") == 1
        for text in (answer["translatedText"], *answer["alternatives"])
    )
    assert all("{name}" in text for text in (answer["translatedText"], *answer["alternatives"]))
    counts = re.findall(r'aiayn_markup_total{by="\w+"} (\S+)', http.get("/metrics").text)
    assert sum(map(float, counts)) == 3 * 2


def test_tags_that_the_model_invents_are_removed_and_counted(translator, monkeypatch):
    def n_best(lines, n):
        return [
            [Translation(f"<b>{line}</b> {{x}}", 0.0, 0.0, translator.source_ids([line])[0])]
            for line in lines
        ]

    monkeypatch.setattr(translator, "n_best", n_best)
    with client(translator) as http:
        found = posted(http, q="<p>the old house", format="html")["translatedText"]
        assert "aiayn_markup_removed_total 3.0" in http.get("/metrics").text
    assert found == "<p>the old house"


@pytest.mark.parametrize(
    ("says", "html"),
    [
        ("may have at most 30,000 characters and 1,000 tags", "x" * 30_001),
        ("may have at most 30,000 characters and 1,000 tags", "<b>x</b>" * 501),
        ("text 1 has 450 words without a tag such as <p> between them", "The house! " * 150),
    ],
)
def test_html_that_takes_too_long_is_refused_in_words(translator, monkeypatch, says, html):
    monkeypatch.setattr(texts, "MAX_WORDS", 3)
    with client(translator) as http:
        answer = http.post("/translate", json=PAIR | {"q": html, "format": "html"})
    assert answer.status_code in (400, 413)
    assert says in answer.json()["error"]


def test_long_texts_are_translated_as_short_ones_in_another_process(translator, monkeypatch):
    html = ["<p>the&nbsp;<b>old</b> house &amp; cat", "x"]
    asked = [{"q": "the old house.\n\n1984"}, {"q": html, "format": "html", "alternatives": 1}]
    works = []

    async def in_process(limiter, work, *arguments):
        works.append(work)
        return await document_process.in_process(limiter, work, *arguments)

    monkeypatch.setattr(module, "in_process", in_process)
    with client(translator) as http:
        as_short_ones = [posted(http, **fields) for fields in asked]
        assert not works
        monkeypatch.setattr(module, "MAX_HTML", 1)
        assert [posted(http, **fields) for fields in asked] == as_short_ones
    assert len(works) == 2 + 3  # to cut, and to join the best and the second translations


def test_html_within_the_limits_is_translated_however_odd(translator):
    deep = "<b>" * 499 + "x" + "</b>" * 499
    with client(translator) as http:
        for html in (
            deep,
            "<b>" * 999 + "x",
            "</b>" * 999,
            "<" * 99,
            "<script>" * 900,
            "<!--" * 99,
            " " * 30_000,
        ):
            found = posted(http, q=html, format="html")["translatedText"]
            assert sorted(re.findall("</?b>", found)) == sorted(re.findall("</?b>", html))


def test_alternatives_are_the_next_translations_of_the_search(http, translator):
    [found] = translator.n_best(["the old house"], 3)
    others = [each.text for each in found[1:]]
    assert len({each.text for each in found}) == 3

    assert posted(http, q="the old house", alternatives=2) == {
        "translatedText": found[0].text,
        "alternatives": others,
    }
    assert posted(http, q=["the old house"], alternatives="1")["alternatives"] == [others[:1]]
    second = "\n".join(best[1].text for best in translator.n_best(["two cats", "the man"], 2))
    assert posted(http, q="two cats\nthe man", alternatives=1)["alternatives"] == [second]


def test_auto_means_the_source_language_of_the_run(http, best):
    detected = {"language": "en", "confidence": 0.0}

    assert posted(http, q="two cats", source="auto") == {
        "translatedText": best("two cats"),
        "detectedLanguage": detected,
    }
    assert posted(http, q=["a", "the"], source="auto")["detectedLanguage"] == [detected] * 2


@pytest.mark.parametrize(
    "encode", [urlencode, lambda fields: "&".join(f"{k}={v}" for k, v in fields.items())]
)
def test_forms_and_addresses_are_read_as_utf_8_escaped_or_not(http, best, encode):
    body = encode({"q": "é 猫"} | PAIR).encode()
    form = {"content-type": "application/x-www-form-urlencoded"}

    assert http.post("/translate", content=body, headers=form).json()["translatedText"] == best(
        "é 猫"
    )
    address = f"/translate?q={quote('é 猫')}&source=en&target=de"
    assert http.post(address).json()["translatedText"] == best("é 猫")


def test_clients_learn_languages_settings_and_health(http):
    english, german = {"code": "en", "name": "English"}, {"code": "de", "name": "German"}

    assert http.get("/languages").json() == [
        english | {"targets": ["de"]},
        german | {"targets": []},
    ]
    settings = http.get("/frontend/settings").json()
    assert settings["language"] == {"source": english, "target": german}
    assert (settings["keyRequired"], settings["run"], settings["alternatives"]) == (
        False,
        "tiny",
        2,
    )
    assert http.get("/health").json() == http.post("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("name", slow_but(["page.html", "messages.po", "film.srt"], DOCUMENTS))
def test_files_are_translated_as_by_the_command_and_loaded_from_the_address_in_the_answer(
    http, translator, name
):
    answer = http.post("/translate_file", data=PAIR, files={"file": (name, DOCUMENTS[name])})
    assert answer.status_code == 200, answer.text

    address = answer.json()["translatedFileUrl"]
    found = http.get(address)

    document = parse_document(Path(name), DOCUMENTS[name], translator.languages)
    [expected], _ = texts.translate_texts(
        translator, [document.pieces], document.markup, paragraphs=document.is_prose
    )
    assert address.startswith("http://localhost:8000/download_file/")
    assert found.content == expected.encode() != DOCUMENTS[name]
    assert found.headers["content-disposition"] == f"attachment; filename*=UTF-8''{name}"
    assert (
        f".{name.partition('.')[2]}"
        in http.get("/frontend/settings").json()["supportedFilesFormat"]
    )


@pytest.mark.parametrize(
    ("status", "says", "name", "content"),
    [
        (400, "a.docx: office documents are not supported", "../a.docx", b"PK"),
        (400, "a.json: choose a file of html, ", "a.json", b"{}"),
        (400, "a.po: line 1 is not valid in a PO catalogue", "c:\\b\\a.po", b"x"),
        (400, "a.md.gz: compressed files are not supported here", "a.md.gz", b"x"),
        (400, "a.txt: compressed files are not supported here", "a.txt", b"PK\3\4\xff"),
        (400, "file named file", "", b"x"),
        (413, "13 sentences; at most 12", "a.md", b"the house.\n\n" * 13),
        (413, "a paragraph has over", "a.html", b"<b>x</b>" * 501),
    ],
)
def test_files_that_cannot_be_translated_are_refused_in_words(http, status, says, name, content):
    answer = http.post("/translate_file", data=PAIR, files={"file": (name, content)})
    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text


def test_the_answer_says_what_of_a_file_is_not_translated(http):
    film = b"the house\n\n1\n00:00:01,000 --> 00:00:02,000\nthe man\n"
    answer = http.post("/translate_file", data=PAIR, files={"file": ("a.srt", film)}).json()
    assert "a.srt: 1 line not translated (no timing above)" in str(answer["remarks"])


def test_plain_text_is_translated_alike_as_a_file_and_in_a_request_however_long_its_paragraphs_are(
    http, best, monkeypatch
):
    monkeypatch.setattr(texts, "MAX_WORDS", 2)  # of what has mark-up
    text = "the old house\r\n\n<b> {x  two cats. The man."
    answer = http.post(
        "/translate_file", data=PAIR, files={"file": ("a.txt", f"\ufeff{text}".encode("utf-16-le"))}
    )
    found = http.get(answer.json()["translatedFileUrl"]).content.decode("utf-16")
    assert found == posted(http, q=text)["translatedText"]
    assert found == f"{best('the old house')}\r\n\n{best('<b> {x  two cats.')} {best('The man.')}"
    assert ".txt" in http.get("/frontend/settings").json()["supportedFilesFormat"]


def test_a_file_needs_a_key_and_a_form_and_old_files_make_room_for_new_ones(
    translator, monkeypatch
):
    with client(translator, keys=["one"]) as http:
        assert (
            http.post("/translate_file", data=PAIR, files={"file": ("a.md", b"the")}).status_code
            == 401
        )
        assert (
            http.post("/translate_file", json=PAIR | {"file": "a", "api_key": "one"}).status_code
            == 400
        )
        assert http.get("/download_file/a.md").status_code == 404
        monkeypatch.setattr("aiayn.apps.server.answers.MAX_FILES", 4)
        sent = {"data": PAIR | {"api_key": "one"}, "files": {"file": ("ä b.md", b"the")}}
        addresses = [
            http.post("/translate_file", **sent).json()["translatedFileUrl"] for _ in range(2)
        ]
        assert [http.get(address).status_code for address in addresses] == [404, 200]


def test_attention_is_between_the_words_of_a_line_and_its_translation(http):
    answer = http.post("/attention", json={"q": "the old house", "translation": "das Haus"})

    assert answer.json()["source"] == ["the", "old", "house"]
    assert [len(row) for row in answer.json()["weights"]] == [3, 3]


def as_json(**fields) -> bytes:
    return json.dumps(PAIR | fields).encode()


@pytest.mark.parametrize(
    ("status", "says", "body"),
    [
        (400, "cannot be read", b'{"q": "a"'),
        (400, "must be a JSON object", b'["a"]'),
        (400, "cannot be read", b"[" * 4000),
        (400, "not UTF-8", b'{"q": "stra\xdfe"}'),
        (400, "not UTF-8", '{"q": "a"}'.encode("utf-16")),
        (400, "text 1 is not valid text", rb'{"q": "a\n\ud800", "source": "en", "target": "de"}'),
        (400, "q must be", as_json()),
        (400, "q must be", as_json(q="")),
        (400, "q must be", as_json(q=["a", 1])),
        (400, "q must be", as_json(q={"a": 1})),
        (400, "this server translates en (or auto) to de", as_json(q="a", source="fr")),
        (400, "this server translates en (or auto) to de", as_json(q="a", target="en")),
        (400, "this server translates en (or auto) to de", as_json(q="a", source="\ud800")),
        (400, "choose text or html", as_json(q="<b>a</b>", format="xml")),
        (400, "alternatives must be a whole number from 0 to 2", as_json(q="a", alternatives=3)),
        (400, "alternatives must be a whole number from 0 to 2", as_json(q="a", alternatives=-1)),
        (
            400,
            "alternatives must be a whole number from 0 to 2",
            as_json(q="a", alternatives="many"),
        ),
        *(
            (
                400,
                "alternatives must be a whole number from 0 to 2",
                as_json(q="a", alternatives=wrong),
            )
            for wrong in (
                float("inf"),
                1.9,
                1.0,
                True,
                False,
                "1.9",
                "-0",
                "²",
                "1" * 500,
                [],
                {},
                [1],
            )
        ),
        (413, "longer than 5,000 bytes", b" " * 5001),
        (413, "sentence 2 has", as_json(q="a\n" + "xy " * 20)),
        (413, "13 sentences; at most 12", as_json(q="a\n" * 13)),
        (413, "13 texts; at most 12", as_json(q=[""] * 13)),
    ],
)
def test_what_cannot_be_translated_is_refused_in_words(http, status, says, body):
    answer = http.post("/translate", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == status
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    ("status", "says", "kind", "body"),
    [
        (400, "not UTF-8", "application/x-www-form-urlencoded", b"q=stra\xdfe"),
        (400, "not UTF-8", "application/x-www-form-urlencoded", b"q=stra%DFe"),
        (400, "cannot be read", "application/x-www-form-urlencoded", b"q=a&" * 101),
        (
            400,
            "'source' is given twice",
            "application/x-www-form-urlencoded",
            b"q=a&source=en&source=de&target=de",
        ),
        (
            400,
            "'target' is given twice",
            "application/json",
            b'{"q": "a", "source": "en", "target": "x", "target": "de"}',
        ),
        (400, "q must be a text", "multipart/form-data; boundary=x", b"--x--"),
        (400, "oundary", "multipart/form-data", b"--x--"),
        (
            400,
            "not UTF-8",
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nstra\xdfe\r\n--x--\r\n',
        ),
        (415, "send JSON", "text/plain", b"q=a"),
        (415, "'gzip': send the body uncompressed", "gzip", b"\x1f\x8b"),
    ],
)
def test_forms_that_cannot_be_read_are_refused_in_words(http, status, says, kind, body):
    header = "content-encoding" if kind == "gzip" else "content-type"
    answer = http.post("/translate", content=body, headers={header: kind})

    assert (answer.status_code, says in answer.json()["error"]) == (status, True)


@pytest.mark.parametrize("charset", ["", "; charset=utf-7", "; charset=unicode_escape"])
def test_a_form_in_parts_is_utf_8_whatever_encoding_it_names(charset):
    body = '--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nß+AGE- \\ud800\r\n--x--\r\n'

    async def receive() -> dict:
        return {"type": "http.request", "body": body.encode()}

    content_type = f"multipart/form-data; boundary=x{charset}".encode()
    scope = {"type": "http", "headers": [(b"content-type", content_type)], "query_string": b""}
    assert asyncio.run(read_fields(Request(scope, receive), 5000)) == {"q": "ß+AGE- \\ud800"}


def test_long_forms_are_read_one_at_a_time_and_short_ones_meanwhile(monkeypatch):
    begun, go_on = [], threading.Event()

    def slow_parse(text: str, **_: object) -> list[tuple[str, str]]:
        begun.append(len(text))
        assert len(text) < SHORT or go_on.wait(60)
        return [("q", "a")]

    monkeypatch.setattr(requests, "parse_qsl", slow_parse)

    def read(body: bytes) -> asyncio.Task:
        async def receive() -> dict:
            return {"type": "http.request", "body": body}

        request = Request({"type": "http", "headers": [], "query_string": b""}, receive)
        return asyncio.create_task(read_fields(request, 1 << 20))

    async def test():
        long = [read(b"q" * 2 * SHORT) for _ in range(3)]
        while not begun:
            await asyncio.sleep(0)
        assert await read(b"q") == {"q": "a"}
        assert begun == [2 * SHORT + 1, 2]
        go_on.set()
        await asyncio.gather(*long)

    asyncio.run(test())


def test_json_with_too_many_lists_is_refused_before_it_is_parsed(translator):
    with client(translator) as http:
        body, header = "[{" * (MAX_BRACKETS // 2 + 1), {"content-type": "application/json"}
        answer = http.post("/translate", content=body, headers=header)
    assert (answer.status_code, "send it in parts" in answer.json()["error"]) == (413, True)


@pytest.mark.parametrize(
    "body",
    [
        {"q": "a"},
        {"q": "a", "translation": " "},
        {"q": "\u200b", "translation": "b"},
        {"q": 1, "translation": "b"},
        {},
    ],
)
def test_attention_needs_two_lines_of_text(http, body):
    assert http.post("/attention", json=body).status_code == 400


def test_attention_waits_in_the_list_of_all_and_is_refused_when_it_is_full(translator, monkeypatch):
    monkeypatch.setattr(Batcher, "waiting", 12)
    with client(translator, max_waiting=12) as http:
        answer = http.post("/attention", json={"q": "a", "translation": "b"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_body_without_end_is_read_only_so_far_that_a_client_reads_the_answer():
    block, sent = b"x" * (1 << 20), 0

    async def receive() -> dict:
        nonlocal sent
        sent += len(block)
        return {"type": "http.request", "body": block, "more_body": True}

    with pytest.raises(HTTPException) as refused:
        asyncio.run(
            read_fields(
                Request({"type": "http", "headers": [], "query_string": b""}, receive), 5000
            )
        )
    assert refused.value.status_code == 413
    assert DRAINED < sent <= DRAINED + 2 * len(block)


def test_unknown_paths_and_methods_are_refused_as_json(http):
    assert http.get("/nothing").json() == {"error": "Not Found"}
    assert http.get("/translate").status_code == 405
    assert http.get("/app.py").status_code == 404


def test_a_line_is_no_longer_than_learned_positions_allow(translator, monkeypatch):
    monkeypatch.setattr(type(translator), "longest_source", 3)
    with client(translator) as http:
        answer = http.post("/translate", json=PAIR | {"q": "the old house of"})
    assert answer.status_code == 413
    assert "at most 3" in answer.json()["error"]


def test_without_a_key_401_with_a_wrong_one_403_with_a_right_one_200(translator):
    fields = PAIR | {"q": "the"}
    with client(translator, keys=["one", "a pass phrase"]) as http:
        codes = []
        for key in ("", None, "on", "pass", 1, ["one"], "\ud800", "one", "a pass phrase"):
            body = json.dumps(fields | {"api_key": key})
            answer = http.post(
                "/translate", content=body, headers={"content-type": "application/json"}
            )
            codes.append(answer.status_code)
        assert http.post("/translate", json=fields).headers["www-authenticate"] == "Bearer"
        assert http.post("/attention", json={"q": "a", "translation": "b"}).status_code == 401
        assert http.post("/detect", json={"q": "a"}).status_code == 401
        assert http.get("/frontend/settings").json()["keyRequired"]
    assert codes == [401, 401, 403, 403, 403, 403, 403, 200, 200]


def test_a_key_may_come_in_the_authorization_header(translator):
    headers = {
        "Bearer one": 200,
        "bearer  a pass phrase ": 200,
        "Bearer two": 403,
        "Bearer": 401,
        "Basic one": 401,
    }
    with client(translator, keys=["one", "a pass phrase"]) as http:
        for header, status in headers.items():
            sent = {"authorization": header}
            assert (
                http.post("/translate", json=PAIR | {"q": "the"}, headers=sent).status_code
                == status
            ), header
            assert http.get("/metrics", headers=sent).status_code == status, header


def test_the_page_and_all_that_it_loads_is_there(http):
    page = http.get("/")
    needed = re.findall(r'(?:href|src)="([^":]+)"', page.text)

    assert sorted(needed) == ["drawing.css", "drawing.js", "page.css", "page.js"]
    assert [http.get(f"/{name}").status_code for name in needed] == [200] * 4


def test_detection_answers_with_the_language_of_the_run_in_the_form_that_clients_read(http):
    assert http.post("/detect", data={"q": "Guten Tag"}).json() == [
        {"language": "en", "confidence": 0.0}
    ]
    assert http.post("/detect", json={"q": ""}).status_code == 400


def test_metrics_count_requests_batches_and_the_lines_that_are_translated(translator):
    with client(translator) as http:
        assert (
            http.post("/attention", json={"q": "the house", "translation": "das Hxus"}).status_code
            == 200
        )
        for q in ("two cats", "the man\nthe house", ["a"]):
            http.post("/translate", json=PAIR | {"q": q})
        http.post("/translate", json=PAIR | {"q": ""})
        http.get("/some/text")
        found = dict(re.findall(r"^(aiayn_[^ ]+) (\S+)$", http.get("/metrics").text, re.MULTILINE))

    assert found['aiayn_requests_total{path="/translate",status="200"}'] == "3.0"
    assert found['aiayn_requests_total{path="/translate",status="400"}'] == "1.0"
    assert found['aiayn_requests_total{path="other",status="404"}'] == "1.0"
    assert found["aiayn_lines_total"] == "4.0"
    assert float(found["aiayn_subwords_total"]) == sum(
        map(len, translator.source_ids(["two cats", "the man", "the house", "a"]))
    )
    assert found["aiayn_batch_lines_sum"] == "4.0"
    # A slow machine divides the two lines
    assert found["aiayn_batch_lines_count"] in ("3.0", "4.0")
    assert found["aiayn_waiting_lines"] == "0.0"


def test_the_access_log_has_a_line_per_request_and_neither_text_nor_keys(translator, caplog):
    caplog.set_level("INFO", "aiayn.access")
    with client(translator, keys=["secret"], access_log=True) as http:
        http.post("/translate?q=hidden&api_key=secret&source=en&target=de&alternatives=x")
        http.post("/translate?q=hidden%0Ahidden&api_key=secret&source=en&target=de")
        http.request("HIDDEN", "/hidden?hidden")
        http.post(
            "/translate", json=PAIR | {"q": "hidden"}, headers={"authorization": "Bearer wrong"}
        )
    subwords = 2 * len(translator.source_ids(["hidden"])[0])

    said = [
        re.sub(r"seconds=\d+\.\d{3}", "seconds=S", record.getMessage()) for record in caplog.records
    ]
    assert said == [
        "client=- method=POST path=/translate status=400 seconds=S lines=0 subwords=0",
        f"client=- method=POST path=/translate status=200 seconds=S lines=2 subwords={subwords}",
        "client=- method=other path=other status=404 seconds=S lines=0 subwords=0",
        "client=- method=POST path=/translate status=403 seconds=S lines=0 subwords=0",
    ]


@pytest.mark.parametrize(
    ("name", "logged"),
    [
        ("2001:DB8::1", "2001:db8::1"),
        ("9.9.9.9", "9.9.9.9"),
        ("9.9.9.9 method=GET path=/admin status=200", "-"),
        ("\x1b[31m9.9.9.9\n", "-"),
    ],
)
def test_the_access_log_has_what_a_proxy_passes_on_only_if_it_is_an_address(
    translator, caplog, name, logged
):
    caplog.set_level("INFO", "aiayn.access")
    with client(translator, access_log=True) as http:
        TestClient(http.app, client=(name, 1)).get("/health")
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"client={logged} method=GET path=/health status=200 ")


def test_without_the_option_there_is_no_access_log(translator, caplog):
    caplog.set_level("INFO", "aiayn.access")
    with client(translator) as http:
        http.get("/health")
    assert caplog.records == []


def test_only_names_of_the_server_are_accepted_as_its_host_others_get_the_remedy_and_health_answers_by_any(
    translator,
):
    names = {
        "localhost": 200,
        "127.0.0.1:8000": 200,
        "[::1]:8000": 200,
        "evil.example": 400,
        "A.home.example": 200,
    }
    with client(translator, allow_host=["*.home.example"]) as http:
        assert {
            name: http.get("/languages", headers={"host": name}).status_code for name in names
        } == names
        assert {http.get("/health", headers={"host": name}).status_code for name in names} == {200}
    with client(translator) as http:
        answer = http.get("/languages", headers={"host": "a.home.example:80"})
    assert answer.status_code == 400
    assert "start the server with --allow-host NAME" in answer.json()["error"]


@pytest.mark.parametrize(
    "options", [{"host": "fd00::5"}, {"allow_host": ["fd00::5"]}, {"allow_host": ["[fd00::5]"]}]
)
def test_an_address_of_ipv6_is_a_name_of_the_server_with_brackets_or_without(translator, options):
    with client(translator, **options) as http:
        found = [
            http.get("/languages", headers={"Host": f"[{one}]:8000"}).status_code
            for one in ("::1", "fd00::5", "fd00::6")
        ]
    assert found == [200, 200, 400]


def test_other_sites_may_use_the_server_only_if_they_are_named(translator):
    def allowed(http, origin):
        asks = {"origin": origin, "access-control-request-method": "POST"}
        return http.options("/translate", headers=asks).headers.get("access-control-allow-origin")

    with client(translator) as http:
        assert allowed(http, "https://a.example") is None
    with client(translator, allow_origin=["https://a.example"]) as http:
        assert allowed(http, "https://a.example") == "https://a.example"
        assert allowed(http, "https://b.example") is None


def test_a_request_that_takes_too_long_is_answered_with_503_and_when_to_come_again(
    translator, monkeypatch
):
    release = threading.Event()
    monkeypatch.setattr(
        translator, "n_best", lambda lines, n: release.wait() and [[] for _ in lines]
    )

    with client(translator, time_limit=0.01) as http:
        answer = http.post("/translate", json=PAIR | {"q": "the"})
        release.set()

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "not done within 0.01 seconds" in answer.json()["error"]


def test_more_lines_than_may_wait_are_answered_with_503_and_when_to_come_again(
    translator, monkeypatch
):
    def full(*_):
        raise QueueFullError

    monkeypatch.setattr(Batcher, "n_best", full)
    with client(translator) as http:
        answer = http.post("/translate", json=PAIR | {"q": "the"})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "too much text is waiting" in answer.json()["error"]


def test_a_client_that_goes_away_cancels_its_work():
    async def test():
        ended = asyncio.Event()

        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def receive():
            await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        with pytest.raises(ClientDisconnect):
            await while_connected(SimpleNamespace(receive=receive), work())
        await ended.wait()

    asyncio.run(test())


def test_an_error_of_the_program_is_answered_without_its_details_and_logged_in_a_line(
    translator, monkeypatch, caplog
):
    monkeypatch.setattr(translator, "n_best", lambda lines, n: 1 / 0)
    with client(translator, raises=False) as http:
        answer = http.post("/translate", json=PAIR | {"q": "the"})
    assert answer.status_code == 500
    assert "the server's log has details" in answer.json()["error"]
    assert "division" not in answer.text
    [record] = caplog.records
    assert record.getMessage() == "ZeroDivisionError: division by zero"
    assert not record.exc_info


def test_a_panic_of_a_library_reaches_its_own_request_only(translator, best, monkeypatch):
    class PanicException(BaseException):  # as those of libraries in Rust
        pass

    plain, expected = translator.n_best, best("two cats")

    def n_best(lines, n):
        if "the" in lines:
            raise PanicException("byte index")
        return plain(lines, n)

    monkeypatch.setattr(translator, "n_best", n_best)
    with client(translator, raises=False) as http:
        assert http.post("/translate", json=PAIR | {"q": "the"}).status_code == 500
        assert posted(http, q="two cats") == {"translatedText": expected}


def test_a_form_may_be_of_several_parts_and_ask_for_several_texts(http, best):
    found = [best("the"), "", best("two cats")]
    assert http.post("/translate", data=PAIR | {"q": ["the", "", "two cats"]}).json() == {
        "translatedText": found
    }
    files = {**{name: (None, value) for name, value in PAIR.items()}, "q": (None, "é 猫")}
    assert http.post("/translate", files=files).json() == {"translatedText": best("é 猫")}


def test_a_run_with_tags_of_languages_translates_into_each_of_them(translator):
    tokenizer = Tokenizer.train(
        [["the old house sees two cats"]], 280, symbols=["<2de>", "<2fr>", "<x>"]
    )
    model = Transformer(small_model(), tokenizer.vocab_size).eval()
    several = Translator(model, tokenizer, translator.search, "cpu", languages=("en", "de"))
    german, french, given = several.translate(["<2de> the", "<2fr> the", "<x> the"])
    with client(several) as http:
        assert http.get("/languages").json()[0]["targets"] == ["de", "fr"]
        assert posted(http, q="the")["translatedText"] == german
        assert posted(http, q=["the", "<x> the"], target="fra")["translatedText"] == [french, given]
        assert http.post("/translate", json=PAIR | {"q": "the", "target": "it"}).status_code == 400
        answer = http.post(
            "/translate_file", data=PAIR | {"target": "fr"}, files={"file": ("a.md", b"the")}
        ).json()
        assert http.get(answer["translatedFileUrl"]).text == french
        attended = http.post("/attention", json={"q": "the", "translation": "two"}).json()
        assert attended["source"] == ["<2de>", "the"]


def test_attention_is_that_of_the_translation_into_the_target_that_is_asked_for(translator):
    tokenizer = Tokenizer.train([["the old house sees two cats"]], 280, symbols=["<2de>", "<2fr>"])
    model = Transformer(small_model(), tokenizer.vocab_size).eval()
    with client(
        Translator(model, tokenizer, translator.search, "cpu", languages=("en", "de"))
    ) as http:
        lines = {"q": "the", "translation": "two"}
        assert http.post("/attention", json=lines | {"target": "fr-CA"}).json()["source"] == [
            "<2fr>",
            "the",
        ]
        assert http.post("/attention", json=lines | {"target": "it"}).status_code == 400


@pytest.mark.parametrize(
    ("source", "target"), [("EN", "de"), ("en-US", "de_DE"), ("en", "DE-at"), ("auto", "de")]
)
def test_variants_of_a_language_are_that_language(http, best, source, target):
    assert posted(http, q="the", source=source, target=target)["translatedText"] == best("the")


@pytest.mark.parametrize(
    ("target", "tags"), [("pt", []), ("pt-PT", []), ("pt_br", ["<2pt-BR>"]), ("fra", ["<2fr>"])]
)
def test_a_variant_with_a_tag_of_its_own_is_that_variant(translator, target, tags):
    tokenizer = Tokenizer.train(
        [["the old house sees two cats"]], 280, symbols=["<2pt-BR>", "<2fr>"]
    )
    model = Transformer(small_model(), tokenizer.vocab_size).eval()
    with client(
        Translator(model, tokenizer, translator.search, "cpu", languages=("en", "pt"))
    ) as http:
        asked = {"q": "the", "translation": "two", "target": target}
        assert http.post("/attention", json=asked).json()["source"] == [*tags, "the"]


def test_a_document_or_text_that_takes_too_long_is_ended_and_health_answers_meanwhile(translator):
    hostile = [("a.md", b"![" * 200_000), ("b.md", b"${" * 200_000), ("c.md", b"[a](" * 100_000)]
    with (
        client(translator, time_limit=1, max_body=2_000_000) as http,
        ThreadPoolExecutor(4) as pool,
    ):
        uploads = [
            pool.submit(http.post, "/translate_file", data=PAIR, files={"file": file})
            for file in hostile
        ]
        many_tags = PAIR | {"format": "html", "q": ["<b>a</b> " * 400] * 500}
        uploads.append(pool.submit(http.post, "/translate", json=many_tags))
        seconds = []
        while not all(upload.done() for upload in uploads):
            start = perf_counter()
            assert http.get("/health").status_code == 200
            seconds.append(perf_counter() - start)
        assert {upload.result().status_code for upload in uploads} == {503}
        # In the server's own process each upload would have held it up for minutes.
        assert max(seconds) < 10
        answer = http.post("/translate_file", data=PAIR, files={"file": ("d.md", b"the house")})
    assert answer.status_code in (200, 503)  # the next one has its turn


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (OSError(24, "Too many open files"), 503, "(Too many open files); try again later"),
        (BrokenWorkerProcess(), 503, "was killed; send less text"),
        (MemoryError(), 413, "needs too much memory; send it in parts"),
    ],
)
def test_a_document_for_which_no_process_can_be_had_is_refused_in_words(
    http, monkeypatch, error, status, says
):
    monkeypatch.setattr(document_process.to_process, "run_sync", AsyncMock(side_effect=error))
    answer = http.post("/translate_file", data=PAIR, files={"file": ("a.txt", b"the house")})
    assert (answer.status_code, says in answer.json()["error"]) == (status, True)


def test_a_text_that_nobody_waits_for_any_more_leaves_no_process_that_was_still_starting():
    def children() -> set[int]:
        return {child.pid for child in Process().children()}

    async def test():
        limiter, others = CapacityLimiter(1), children()
        left = asyncio.create_task(document_process.in_process(limiter, os.getpid))
        while not children() - others:
            await asyncio.sleep(0)
        for _ in range(50):  # until its pipes are there; Python takes far longer to start
            await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
        working = await document_process.in_process(limiter, os.getpid)
        assert children() - others == {working}

    asyncio.run(test())


def test_names_of_files_count_and_may_not_be_long(translator, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 3 * (module.ENTRY + 60))
    with client(translator) as http:
        long = http.post("/translate_file", data=PAIR, files={"file": ("n" * 300 + ".txt", b"")})
        assert (long.status_code, "longer than 255" in long.json()["error"]) == (400, True)
        answers = [
            http.post("/translate_file", data=PAIR, files={"file": (f"{n}.txt", b"1")})
            for n in range(5)
        ]
        kept = [http.get(answer.json()["translatedFileUrl"]).status_code for answer in answers]
    assert kept == [404, 404, 200, 200, 200]


def test_a_file_that_takes_the_place_of_many_takes_no_longer_for_it(monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 30_000 * (module.ENTRY + 5))
    files = OrderedDict((f"{number:05}", b"") for number in range(30_000))
    start = process_time()
    module.keep_file(files, "large", bytes(10_000 * module.ENTRY))
    assert process_time() - start < 2  # far longer if all are counted anew for each removed one
    assert 19_000 < len(files) < 20_100
    assert ("00000" in files, "29999" in files, "large" in files) == (False, True, True)


def test_the_zone_of_an_address_is_not_logged():
    assert _address("fe80::1%\x1b]0;x") == "fe80::1"
