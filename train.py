"""Trains a Transformer, or continues the run of the same name; `aiayn train` does the same.

python train.py experiment=quickstart
python train.py model=big trainer.devices=8
python train.py -m ablation='glob(*)' sweep=table3
python train.py --help
"""

from aiayn.cli.hydra_commands import train

if __name__ == "__main__":
    train(__file__)
