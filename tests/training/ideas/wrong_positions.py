"""WRONG ON PURPOSE: encodes the rows that it is asked for from 0 on, wherever they begin."""

from aiayn.model.embedding import SinusoidalPositions
from aiayn.model.layers import Parts


class FromZero(SinusoidalPositions):
    def forward(self, start, length):
        return super().forward(0, length)


PARTS = Parts(positions=lambda c, place: FromZero(c.d_model))
