"""An exponential moving average of the weights, by Lightning's own callback."""

from pytorch_lightning.callbacks import EMAWeightAveraging


def callbacks(run):
    return [EMAWeightAveraging(use_buffers=False, decay=0.5)]
