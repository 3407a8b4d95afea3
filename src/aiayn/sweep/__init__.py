"""`train.py -m`: a grid of options, one process or SLURM job per row, in fixed folders."""
