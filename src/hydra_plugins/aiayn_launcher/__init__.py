"""`train.py -m`: a grid of options, one process per job, in fixed folders."""
