"""Why a run's figures cannot be compared with the paper's."""

from collections.abc import Sequence
from pathlib import Path, PurePath

from aiayn.config.data import DataConfig
from aiayn.reports.published import STATED_VOCABULARY, TOKENS_PER_STEP, VOCABULARIES
from aiayn.reports.runs import MeasuredRun
from aiayn.runs.run_folder import Record


def obstacles(run: MeasuredRun, paper_steps: int, evaluation: Record | None, test_set: str) -> list[str]:
    """Returns the reasons why a run, scored as `evaluation` says, cannot be compared with the paper."""
    config = run.settled()
    data = config.data
    sizes = VOCABULARIES.get((data.src_lang, data.tgt_lang), (STATED_VOCABULARY,))
    found = []
    if not _is_wmt14(data):
        found.append(f"trained on {_text(data)}, the paper on WMT14")
    if run.step != paper_steps:
        found.append(f"{run.step:,} steps, the paper {paper_steps:,}")
    if data.tokens_per_step != TOKENS_PER_STEP:
        found.append(f"{data.tokens_per_step:,} tokens a step, the paper about {TOKENS_PER_STEP:,}")
    if data.vocab_size not in sizes:
        found.append(f"a vocabulary of {data.vocab_size:,}, the paper about {sizes[0]:,}")
    if (config.optim.warmup_steps, config.optim.lr_scale) != (4000, 1):
        warmup, scale = config.optim.warmup_steps, config.optim.lr_scale
        found.append(f"optim.warmup_steps={warmup} and optim.lr_scale={scale:g}, the paper 4000 and 1")
    known = evaluation.get("test_set") == test_set if evaluation else _is_wmt14(data)
    if not known:
        found.append(f"measured on other text than {test_set}")
    elif evaluation and evaluation.get("n_references", 1) != 1:
        found.append("scored with several references")
    return found


def warning(records: Sequence[Record]) -> list[str]:
    """Returns one paragraph with the reasons that these records have under not_comparable; none without any."""
    measured = [record for record in records if record["run"]]
    concerned = [record for record in measured if record["not_comparable"]]
    reasons = dict.fromkeys(reason for record in concerned for reason in record["not_comparable"])
    if not reasons:
        return []
    count = f"{len(concerned)} of {len(measured)} row{'s' * (len(measured) > 1)}"
    lines = [f"Not comparable with the paper's figures ({count}), whatever the differences below:"]
    for reason in reasons:
        names = [PurePath(record["run"]).name for record in concerned if reason in record["not_comparable"]]
        # Rows are named where a reason does not apply to all of them.
        lines.append(f"- {reason}" + (f" ({', '.join(names)})" if len(names) < len(measured) else ""))
    return ["\n".join(lines)]


def _is_wmt14(data: DataConfig) -> bool:
    return data.source == "hub" and Path(data.hub_path or "").name == "wmt14" and data.train == "train"


def _text(data: DataConfig) -> str:
    if data.source == "phrasebook":
        return "the phrasebook"
    return str(data.hub_path) if data.source == "hub" else f"data.train={data.train}"
