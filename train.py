"""Trains a Transformer, or continues the run of the same name; `aiayn train` does the same.

python train.py experiment=quickstart
python train.py model=big trainer.devices=8
python train.py -m ablation='glob(*)' sweep=table3
python train.py --help
"""

import sys

try:
    from aiayn.cli.hydra_commands import train
except ModuleNotFoundError as error:
    print(f"error: {error}; make install, then type: source .venv/bin/activate", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    train(__file__)
