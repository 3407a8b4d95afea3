"""A metric: chrF++, which counts words as well as characters, in validation and in evaluate.py.

python train.py 'extensions=[examples/extensions/chrf_pp.py]' trainer.best_metric=val/chrf_pp
python evaluate.py run=outputs/NAME 'extensions=[examples/extensions/chrf_pp.py]'
"""

from sacrebleu.metrics import CHRF


def chrf_pp(hypotheses: list[str], references: list[str]) -> float:
    return CHRF(word_order=2).corpus_score(hypotheses, [references]).score


METRICS = {"chrf_pp": chrf_pp}
