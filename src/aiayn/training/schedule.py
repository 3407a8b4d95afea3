"""Section 5.3: the learning rate."""


def learning_rate(step: int, d_model: int, warmup_steps: int, lr_scale: float = 1.0) -> float:
    """Equation (3) for step 1, 2, ...: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), times lr_scale."""
    return lr_scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def usual_peak(d_model: int) -> float:
    """The highest rate of base, 0.0007 at d_model 512, in proportion to 1 / d_model: 0.0028 at 128, as for Multi30k."""
    return learning_rate(4000, 512, 4000) * 512 / d_model
