"""Translates a test set with a trained run and scores the text; `aiayn evaluate` does the same.

python evaluate.py run=outputs/quickstart
python evaluate.py --help
"""

from aiayn.cli.hydra_commands import evaluate

if __name__ == "__main__":
    evaluate(__file__)
