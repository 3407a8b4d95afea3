"""Do the exports translate as the run does? Greedy, and beam 4 with and without length penalty,
float32.

    python benchmarks/export_parity.py RUN FILE [--sentences 500] [--threads 1]

FILE has source sentences, plain or .gz. Without a length penalty the most probable output can be
the empty one: our search accepts an end among the best 8 continuations of 4 beams, the other
engines one among the best 4. So beam 4 is compared as it is and with at least one token. The length
penalty is |Y|^alpha everywhere (search.penalty=power), and the other engines are told to search for
as long as ours does.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from engines import Engine, Ids, ctranslate2_engine, marian_engine, our_engine
from measure import parse_options, report

from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.text_files import read_lines
from aiayn.doors import load_from
from aiayn.runs.checkpoints import load
from aiayn.runs.run_folder import find_checkpoint
from aiayn.search.force_decode import force_decode
from aiayn.search.translator import Translator, load_translator

BATCH_SIZE = 20
TIE = 1e-3  # outputs whose log P differ by less: rounding decides
CASES = ((1, 0, 0.0), (4, 0, 0.0), (4, 1, 0.0), (4, 1, 0.6))  # beam size, fewest tokens, alpha


def log_prob(translator: Translator, source: list[int], output: list[int]) -> float:
    """Returns log P of an output and its eos."""
    src = pad_sources([source])
    log_probs, _ = force_decode(translator.models, src, source_mask(src), pad_sources([output]))
    return float(log_probs.double().sum())


def translate(engine: Engine, sources: Ids, beam_size: int, shortest: int, alpha: float) -> Ids:
    batches = [sources[start : start + BATCH_SIZE] for start in range(0, len(sources), BATCH_SIZE)]
    return [
        ids
        for batch in batches
        for ids in engine(batch, beam_size, alpha, shortest, max(map(len, batch)) + 50)
    ]


def summary(differences: list[dict[str, Any]]) -> dict[str, int]:
    """Counts the differences that are ties, and those in which our or their output is the more
    probable one.
    """
    gaps = [row["log P of ours"] - row["log P of theirs"] for row in differences]
    return {
        "ties": sum(abs(gap) < TIE for gap in gaps),
        "ours better": sum(gap >= TIE for gap in gaps),
        "theirs better": sum(gap <= -TIE for gap in gaps),
        "ours empty": sum(not row["ours"] for row in differences),
    }


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(
        __doc__, arguments, {"run": None, "file": None}, sentences=500, threads=1
    )
    lines = [line for line in read_lines(Path(options.file)) if line.strip()][: options.sentences]
    checkpoint = load(find_checkpoint(Path(options.run), None))
    translator = load_translator(checkpoint, accelerator="cpu")
    sources = {"ours": translator.source_ids(lines)}
    engines = {"ours": our_engine(translator.model, "cpu")}
    with tempfile.TemporaryDirectory() as temporary:
        for name, build in (("ctranslate2", ctranslate2_engine), ("marian", marian_engine)):
            folder = Path(temporary, name)
            load_from("aiayn.exporters", name)(checkpoint, folder)
            engines[name] = build(folder, "float32", "cpu")
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            sources[name] = [
                line.ids for line in tokenizer.encode_batch(lines, add_special_tokens=False)
            ]

    rows, differences = [], []
    for case in CASES:
        outputs = {
            name: translate(engine, sources[name], *case) for name, engine in engines.items()
        }
        for name in ("ctranslate2", "marian"):
            setting = {
                "engine": name,
                **dict(zip(("beam", "least tokens", "alpha"), case, strict=True)),
            }
            triples = zip(sources["ours"], outputs["ours"], outputs[name], strict=True)
            unequal = [
                setting
                | {
                    "line": number,
                    "log P of ours": round(log_prob(translator, source, ours), 4),
                    "log P of theirs": round(log_prob(translator, source, theirs), 4),
                    **dict(
                        zip(
                            ("ours", "theirs"),
                            translator.tokenizer.decode([ours, theirs]),
                            strict=True,
                        )
                    ),
                }
                for number, (source, ours, theirs) in enumerate(triples, 1)
                if ours != theirs
            ]
            rows.append(
                setting
                | {"sentences": len(lines), "identical": len(lines) - len(unequal)}
                | summary(unequal)
            )
            differences += unequal
    report("export_parity", rows, options.out)
    for row in differences:
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
