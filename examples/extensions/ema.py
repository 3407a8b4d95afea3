"""An exponential moving average of the weights (Lightning's callback): validated, saved and averaged in their place.

python train.py extensions=[examples/extensions/ema.py] extension.ema.decay=0.999
"""

from dataclasses import dataclass

from pytorch_lightning.callbacks import Callback, EMAWeightAveraging

from aiayn.training.context import RunContext


@dataclass
class Options:
    decay: float = 0.999


def callbacks(run: RunContext) -> list[Callback]:
    # Tables of positions and counters are no weights: their rounding errors would add up.
    return [EMAWeightAveraging(use_buffers=False, decay=Options(**run.config.extension["ema"]).decay)]
