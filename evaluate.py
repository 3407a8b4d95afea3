"""Translates a test set with a trained run and scores the text; `aiayn evaluate` does the same.

python evaluate.py run=outputs/quickstart
python evaluate.py --help
"""

import sys

try:
    from aiayn.cli.hydra_commands import evaluate
except ModuleNotFoundError as error:
    print(f"error: {error}; make install, then type: source .venv/bin/activate", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    evaluate(__file__)
