"""`train.py -m`: a grid of options, one process a job, in folders that stay where they are."""
