"""Translates and scores a test set, from raw source to evaluation.json: what `evaluate.py` does."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiayn.config import program
from aiayn.config.data import DataConfig
from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.extensions import (
    constraining,
    ids_of_files,
    measure,
    metrics_of,
    register_extensions,
)
from aiayn.config.rules import known_tags, listed
from aiayn.config.stored import to_dict
from aiayn.data.cleaning import learned_target
from aiayn.data.text_files import read_lines, read_parallel
from aiayn.errors import ConfigError, DataError, RefusedError, ResourceError, UserError, writing
from aiayn.evaluation.progress import TranslationProgress
from aiayn.evaluation.score_table import made_with, score_table
from aiayn.evaluation.significance import BOOTSTRAP, RANDOMISATION, compare_systems
from aiayn.evaluation.test_set import TestSet, read_test_set, results_folder
from aiayn.evaluation.translation_task import task_of
from aiayn.files import atomic_write, lines_sha256, sha256, write_json
from aiayn.reports.published import paper_figures
from aiayn.reports.report import write_report
from aiayn.runs.checkpoints import Checkpoint, load
from aiayn.runs.results import Evaluation, read_evaluation
from aiayn.runs.run_folder import (
    EvaluationFolder,
    RunFolder,
    find_checkpoints,
    folder_of,
    refuse_link,
    similar_run,
    with_stored,
    write_jsonl,
)
from aiayn.search.force_decode import accuracy, perplexity
from aiayn.search.processes import SplitTranslator, on_devices
from aiayn.search.translator import Translator, load_translator

KEPT_SAMPLES = 20


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Translates raw source, scores the text, prints a table, and writes all of it into the run's
    folder.

    `RUN/evaluation/SPLIT/` gets `hypotheses.txt`, with `source.txt` and `reference.txt` beside it,
    `evaluation.json`, whose content is returned, and `samples.jsonl`; the run's page is written
    again. With `out`, that folder gets them, and the run stays as it is.

    Raises RefusedError for a missing or damaged run, checkpoint or baseline, DataError for missing
    or misaligned text, ConfigError for a missing GPU or options that do not apply to a parser,
    ResourceError if memory or disk run out, or the results have no place.
    """
    # Whatever can be refused is refused before the search.
    config = replace(config, extensions=with_stored(config.extensions, Path(config.run)))
    extensions = register_extensions(config.extensions)
    run, ensemble = Path(config.run), listed(config.ensemble)
    paths = find_checkpoints(run, ensemble, config.checkpoint)
    checkpoint, *other_checkpoints = checkpoints = [load(path) for path in paths]
    trained_on = _present_data(run, checkpoint)
    task = task_of(trained_on.task)
    test = read_test_set(config, trained_on)
    baseline = _read_baseline(Path(config.baseline), test) if config.baseline else None
    task.check_text(test.sources, test.references[0], test.tgt_lang)
    hypotheses: list[str] = []
    if config.hypotheses:
        hypotheses = read_parallel("hypotheses", config.hypotheses, len(test.sources))
    folder = results_folder(RunFolder(folder_of(run)), test, ensemble)
    if config.out:
        folder = EvaluationFolder(Path(config.out).expanduser())
    else:
        refuse_link(folder.folder.parent)
        refuse_link(folder.folder)
    _refuse_unwritable(folder)

    loading = (checkpoint, config.search, config.accelerator, "float32", other_checkpoints)
    translator = load_translator(*loading, extensions=extensions)
    known_tags(test.option, test.prefix, translator.tokenizer.source.symbols)
    with on_devices(translator, config.devices, loading, config.extensions) as shared:
        seconds = 0.0
        if not config.hypotheses:
            progress = TranslationProgress()
            try:
                hypotheses = shared.translate(test.sources, progress)
            finally:  # a live line hides the terminal's cursor
                seconds = progress.finish()
        forced = _forced_decoding(shared, trained_on, test)

    scores = task.score(hypotheses, test.sources, test.references, test.tgt_lang)
    scores.metrics.update(
        measure(metrics_of(extensions), hypotheses, test.references[0], test.sources)
    )
    search = to_dict(translator.search)
    if constraints := [extension.file_id for extension in constraining(extensions)]:
        search["constraints"] = constraints
    if config.hypotheses:
        search = {"hypotheses": Path(config.hypotheses).name.replace("=", "-")}
    identity, *other_identities = (
        {"checkpoint": path.name, "checkpoint_sha256": sha256(path), "step": member.step}
        for path, member in zip(paths, checkpoints, strict=True)
    )
    other_runs = zip(ensemble, other_identities, strict=True)
    n_references = len(test.references)
    evaluation = Evaluation(
        **vars(scores),
        **identity,
        n_references=n_references,
        text=test.option,
        test_set=test.of_paper,
        split=test.split,
        prefix=test.prefix,
        text_sha256=test.fingerprint,
        paper=paper_figures(test.of_paper, trained_on.src_lang, test.tgt_lang, n_references),
        task=trained_on.task,
        forced=forced,
        extensions_sha256=ids_of_files(extensions),
        src_lang=trained_on.src_lang,
        tgt_lang=test.tgt_lang,
        corpus=checkpoint.corpus,
        tokenizer_sha256=translator.tokenizer.fingerprint,
        averaged=checkpoint.averaged,
        ensemble=[{"run": name} | other_identity for name, other_identity in other_runs],
        search=search,
        seconds=round(seconds, 1),
        device=translator.device.type,
        hypotheses_sha256=lines_sha256(hypotheses),
    )
    if baseline:
        tests = _against_baseline(baseline, evaluation, hypotheses, test)
        evaluation = replace(evaluation, baseline={"run": config.baseline, **tests})

    _write_results(folder, evaluation, test, hypotheses)
    files = f"{folder.scores}, {folder.hypotheses.name}"
    if not config.out:
        with suppress(UserError):  # the scores stand, whether or not the page can be made
            files += f"; {write_report(folder_of(run))}"
    print(f"{score_table(evaluation)}\n\nfiles    {files}")
    translate = f"{program.typed('translate')} {run}"
    if task.usual_format:
        translate += f" --format {task.usual_format}"
    if checkpoint.config.model.parts:
        translate += program.extension_flags(config.extensions)
    print(f"next     {translate}")
    return evaluation


def _present_data(run: Path, checkpoint: Checkpoint) -> DataConfig:
    """Returns the data options of a checkpoint, or the present ones of a run, whose data.test may
    have changed since.
    """
    with suppress(RefusedError):  # a checkpoint by itself
        stored = RunFolder(folder_of(run)).read_config()["data"]
        return replace(checkpoint.config.data, test=stored.get("test", checkpoint.config.data.test))
    return checkpoint.config.data


def _forced_decoding(
    translator: Translator | SplitTranslator, data: DataConfig, test: TestSet
) -> dict[str, Any] | None:
    """Returns how probable the model finds the first reference; None where it has too few learned
    positions.
    """
    references = [learned_target(line, data.tags) for line in test.references[0]]
    try:
        pairs = translator.score(list(test.sources), references)
    except DataError:
        return None
    tokens = sum(len(pair.tokens) for pair in pairs)
    return {
        "perplexity": perplexity(sum(pair.log_prob for pair in pairs), tokens),
        "accuracy": 100 * accuracy(pairs),
        "tokens": tokens,
    }


def _read_baseline(run: Path, test: TestSet) -> tuple[list[str], Evaluation]:
    """Returns the other run's translations and scores. Raises ConfigError if there is no such run,
    RefusedError unless they are of the same text.
    """
    if not run.exists():
        raise ConfigError(f"baseline={run}: no such run{similar_run(run) or '; train it first'}")
    stored = results_folder(RunFolder(folder_of(run)), test)
    remedy = f"type: {program.typed('evaluate')} run={run} {test.option}"
    evaluation = read_evaluation(stored.scores)
    hypotheses = read_lines(stored.hypotheses) if stored.hypotheses.exists() else []
    # A kill, or a second evaluation, may have left the hypotheses of one beside the scores of
    # another.
    if evaluation is None or evaluation.hypotheses_sha256 != lines_sha256(hypotheses):
        raise RefusedError(f"baseline={run}: no scored translations in {stored.folder}; {remedy}")
    if evaluation.text_sha256 != test.fingerprint:
        raise RefusedError(
            f"baseline={run}: {stored.hypotheses} translates another text ({len(hypotheses)} "
            f"lines, here {len(test.sources)}); score both runs on one text, test=PREFIX"
        )
    return hypotheses, evaluation


def _against_baseline(
    baseline: tuple[list[str], Evaluation],
    evaluation: Evaluation,
    hypotheses: list[str],
    test: TestSet,
) -> dict[str, Any]:
    """Returns the paired tests against a baseline, by kind of score, and which options differ."""
    baseline_hypotheses, of_baseline = baseline
    ours, theirs = made_with(evaluation), made_with(of_baseline)
    return {
        "differs": {key: value for key, value in theirs.items() if value != ours.get(key)},
        "n_samples": BOOTSTRAP,
        "n_trials": RANDOMISATION,
        "kinds": compare_systems(baseline_hypotheses, hypotheses, test.references, test.tgt_lang),
    }


def _refuse_unwritable(to: EvaluationFolder) -> None:
    """Raises ResourceError where results cannot be written, before they have taken their time."""
    there = next(path for path in (to.folder, *to.folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        fault = "read-only" if there.is_dir() else "a file"
        raise ResourceError(
            f"{to.folder}: cannot be written ({there} is {fault}); name another folder for the "
            "results, out=FOLDER"
        )


def _write_results(
    to: EvaluationFolder, evaluation: Evaluation, test: TestSet, hypotheses: list[str]
) -> None:
    """Writes hypotheses beside their source and reference, scores and, to be read on the page,
    evenly spread samples.

    Raises ResourceError where they cannot be written; no file is left incomplete.
    """
    lines = zip(test.sources, test.references[0], hypotheses, strict=True)
    samples = [
        {"source": source, "reference": reference, "hypothesis": line}
        for source, reference, line in lines
    ]
    texts = {to.source: test.sources, to.reference: test.references[0], to.hypotheses: hypotheses}
    with writing(to.folder, "make room there and run again"):
        for path, text in texts.items():
            atomic_write(path, "".join(f"{line}\n" for line in text))
        write_json(to.scores, to_dict(evaluation))
        write_jsonl(to.samples, samples[:: -(-len(samples) // KEPT_SAMPLES)])
