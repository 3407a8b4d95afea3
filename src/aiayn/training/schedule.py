"""Section 5.3: the learning rate."""


def learning_rate(step: int, d_model: int, warmup_steps: int, lr_scale: float = 1.0) -> float:
    """Returns equation (3) for step 1, 2, ...: d_model^-0.5 * min(step^-0.5, step *
    warmup_steps^-1.5), times lr_scale.
    """
    return lr_scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
