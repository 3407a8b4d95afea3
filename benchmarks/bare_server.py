"""The least server of translations: CTranslate2 behind Python's HTTP server.

    python benchmarks/bare_server.py FOLDER

FOLDER is what `aiayn export --format ctranslate2` writes. Prints its address, and answers the
requests that `aiayn serve` answers at /translate, one line each, with four beams.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ctranslate2
from tokenizers import Tokenizer

BEAMS: dict[str, Any] = {"beam_size": 4, "patience": 2}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        line = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["q"]
        tokens = tokenizer.encode(line, add_special_tokens=False).tokens
        longest = len(tokens) + search["max_extra_tokens"]
        [translated] = engine.translate_batch([tokens], max_decoding_length=longest, **BEAMS)
        ids = [tokenizer.token_to_id(token) for token in translated.hypotheses[0]]
        body = json.dumps({"translatedText": tokenizer.decode(ids)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


if __name__ == "__main__":
    folder, threads = Path(sys.argv[1]), int(os.environ["OMP_NUM_THREADS"])
    engine = ctranslate2.Translator(str(folder), intra_threads=threads)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    search = json.loads((folder / "search.json").read_text(encoding="utf-8"))
    BEAMS["length_penalty"] = search["length_penalty"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
