"""The task of a run, as an object: what `data.task` names. Parsing is in `parsing/task.py`."""

from aiayn.config.tasks import METRIC_KINDS, Task, TaskScores

LEARNED_BLEU = 5.0  # below, a model writes nonsense of any length


class TranslationTask(Task):
    """Text to text, scored with BLEU and other metrics of text."""

    kinds = METRIC_KINDS

    # sacreBLEU takes a while to import: only where it is used.

    def check_text(self, sources: list[str], references: list[str], tgt_lang: str) -> None:
        """Checks that there is a tokenizer to score a translation; every text is one."""
        if references:
            from aiayn.evaluation.scoring import check_tokenizer

            check_tokenizer(tgt_lang, references)

    def score(
        self, hypotheses: list[str], sources: list[str], references: list[list[str]], tgt_lang: str
    ) -> TaskScores:
        from aiayn.evaluation.scoring import score

        return score(hypotheses, references, tgt_lang)

    def val_scores(
        self, hypotheses: list[str], sources: list[str], references: list[str], tgt_lang: str
    ) -> dict[str, float]:
        from aiayn.evaluation.scoring import score

        scores = score(hypotheses, references, tgt_lang, kinds=["sacrebleu"])
        value = scores.metrics["sacrebleu"]
        assert value is not None, "sacreBLEU applies to every language"
        return {"val/bleu": value, "val/length_ratio": scores.details["sacrebleu"]["length_ratio"]}


def task_of(name: str) -> Task:
    """Returns the task that `data.task` names."""
    if name == "translation":
        return TranslationTask()
    from aiayn.parsing.task import ParsingTask

    return {"parsing": ParsingTask}[name]()


def short_outputs(ratio: float | None, bleu: float | None) -> str:
    """Says what helps where outputs are 5 % shorter than the references, or more; nothing of a
    model that has learned too little for its lengths to mean something.
    """
    if ratio is None or ratio > 0.95 or (bleu or 0) < LEARNED_BLEU:
        return ""
    return (
        f"outputs have {100 * (1 - ratio):.0f} % fewer tokens than the references: train longer, "
        "tune search.length_penalty on the development set, keep data.parts_per_step at 4 or more"
    )
