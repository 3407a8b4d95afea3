"""An exponential moving average of the weights (Lightning's callback): validated, saved and
averaged in their place.

python train.py 'extensions=[examples/extensions/ema.py]' extension.ema.decay=0.999
"""

from dataclasses import dataclass

from pytorch_lightning.callbacks import Callback, EMAWeightAveraging

from aiayn.config.rules import require
from aiayn.training.start import RunSpec


@dataclass
class Options:
    decay: float = 0.999

    def __post_init__(self) -> None:
        require(
            0 < self.decay < 1, f"extension.ema.decay={self.decay}: must be above 0 and below 1"
        )


def callbacks(run: RunSpec) -> list[Callback]:
    precision = run.config.trainer.precision
    require(
        precision != "bf16-true",
        f"ema.py: trainer.precision={precision} rounds a thousandth of a change away",
    )
    # Position tables and counters are not weights: averaging would add up rounding errors.
    return [
        EMAWeightAveraging(use_buffers=False, decay=Options(**run.config.extension["ema"]).decay)
    ]
