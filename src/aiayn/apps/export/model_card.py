"""The model card of an export: README.md as model hubs read it, a YAML header and a page for
people.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from aiayn.config.data import DataConfig
from aiayn.config.rules import Paths, listed, tagged
from aiayn.config.tasks import METRIC_KINDS
from aiayn.data.languages import tags_of_targets
from aiayn.errors import counted
from aiayn.model.flops import counted_parameters
from aiayn.reports.tables import Column, Table, markdown
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.results import Evaluation


def model_card(
    checkpoint: Checkpoint, name: str, evaluations: Mapping[str, Evaluation], licence: str
) -> str:
    """Returns the card of a Marian export; `evaluations` holds the evaluation.json of this
    checkpoint by test set.
    """
    corpus, model = checkpoint.config.data, checkpoint.config.model
    weights = (
        f"the average of {counted(len(checkpoint.averaged), 'checkpoint')}"
        if checkpoint.averaged
        else "one checkpoint"
    )
    targets = tags_of_targets(corpus.all_symbols, corpus.tgt_lang)
    tags = ", ".join(filter(None, targets.values()))
    tags = f" A text begins with the tag of its target: {tags}." if tags else ""
    began = " from the weights of another model" if checkpoint.config.init_from else ""
    missing_data_note = " The training data of that model is not listed here." if began else ""
    parameters = sum(weight.numel() for weight in checkpoint.weights.values())
    return f"""---
{_header(corpus, name, evaluations, licence)}
---

# {name}

Translates {corpus.src_lang} to {", ".join(targets)}: a Transformer ("Attention Is All You Need")
with {counted_parameters(parameters)}, {model.n_layers} + {model.decoder_layers} layers, d_model
{model.d_model}, trained for {checkpoint.step:,} steps{began}; {weights}, in float32.{tags}

## How to load it

```python
from transformers import AutoTokenizer, MarianMTModel

tokenizer, model = AutoTokenizer.from_pretrained("PATH"), MarianMTModel.from_pretrained("PATH")
ids = model.generate(**tokenizer(["..."], return_tensors="pt", padding=True))
print(*tokenizer.batch_decode(ids, skip_special_tokens=True), sep="\\n")
```

PATH is this folder, or the name of the model on the hub. The tokenizer takes raw text.

## Training data

{_data(corpus)}{missing_data_note}

## Scores

{_table(evaluations)}

## Licence

{licence}. The training data may have terms of its own that also apply to models trained on it.
"""


def _header(
    corpus: DataConfig, name: str, evaluations: Mapping[str, Evaluation], licence: str
) -> str:
    """Returns the YAML at the beginning of the card, as the library of the hub writes it."""
    from huggingface_hub import EvalResult, ModelCardData

    is_on_hub = corpus.source == "hub" and not Path(corpus.hub_path or "").is_absolute()
    scores = [
        EvalResult(
            task_type="translation",
            task_name="Translation",
            dataset_type="text",
            dataset_name=evaluation.test_set or test,
            dataset_split=test,  # without it, the library takes all texts for one
            dataset_args=f"{corpus.src_lang}-{evaluation.tgt_lang or corpus.tgt_lang}",  # pyright: ignore[reportArgumentType]
            metric_type=metric if metric in ("chrf", "ter") else "bleu",  # all others are kinds
            metric_name=metric,
            metric_value=score,
            metric_args={"signature": signature},
        )
        for test, evaluation in evaluations.items()
        for metric, score, signature in _scores(evaluation)
    ]
    return ModelCardData(
        language=[corpus.src_lang, *tags_of_targets(corpus.all_symbols, corpus.tgt_lang)],
        license=licence,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "marian", "aiayn"],
        datasets=[corpus.hub_path] if corpus.hub_path and is_on_hub else None,
        model_name=name if scores else None,
        eval_results=scores or None,
    ).to_yaml()


def _scores(evaluation: Evaluation) -> Iterator[tuple[str, float, str]]:
    """Yields kind, score and signature of every score that an evaluation has."""
    for metric in METRIC_KINDS:
        if (score := evaluation.metrics.get(metric)) is not None:
            yield metric, score, evaluation.signatures.get(metric) or ""


def _data(corpus: DataConfig) -> str:
    """Says what the model was trained on, without paths of the machine."""
    if corpus.source == "hub":
        parts = [
            corpus.hub_path,
            corpus.hub_name,
            corpus.hub_revision and f"revision {corpus.hub_revision}",
        ]
        where = ", ".join(
            Path(part).name if Path(part).is_absolute() else part for part in parts if part
        )
        text = f"`{where}`, split(s) {_names(corpus.train)}"
    elif corpus.source == "files":
        text = f"text files of the person who trained it ({_names(corpus.train)})"
    else:
        text = "the generated phrasebook that is built into aiayn"
    return (
        f"{text[0].upper()}{text[1:]}. "
        f"Pairs of more than {corpus.max_length} subwords were left out."
    )


def _names(paths: Paths) -> str:
    return ", ".join(Path(tagged(path)[1]).name for path in listed(paths))


def _table(evaluations: Mapping[str, Evaluation]) -> str:
    if not evaluations:
        return "This checkpoint has not been scored: run evaluate.py and export again."
    records = [
        {"test set": evaluation.test_set or test, "lines": evaluation.lines}
        | {"kind": metric, "score": score, "signature": signature}
        for test, evaluation in evaluations.items()
        for metric, score, signature in _scores(evaluation)
    ]
    keys = ("test set", "lines", "kind", "score", "signature")
    columns = [Column(key, key, 2 if key == "score" else None) for key in keys]
    about = "Scored by aiayn, with its own search, against untouched references."
    return markdown([Table("", columns, records, after=[about])]).rstrip("\n")
