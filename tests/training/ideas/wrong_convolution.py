"""WRONG ON PURPOSE: adds the row before, which is the position before in training only: in a search
rows are beams.
"""

from torch.nn import functional as F

from aiayn.model.layers import FeedForward, Parts


class Convolution(FeedForward):
    def forward(self, x):
        return super().forward(x + F.pad(x, (0, 0, 1, 0))[:, :-1])


PARTS = Parts(feed_forward=lambda c, place: Convolution(c.d_model, c.d_ff))
