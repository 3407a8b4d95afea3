"""What to say about an option that does not exist: its new name, or the option that was probably meant."""

import difflib
from dataclasses import fields

from aiayn.config import Config
from aiayn.options import RENAMED, is_section, option_names

# Groups of files in conf/ that are no section of the options.
FILE_GROUPS = ("ablation", "experiment")

# What options are called in other programs.
OTHER_NAMES = {
    "accumulate_grad_batches": "data.micro_batches",
    "adam_beta1": "optim.beta1",
    "adam_beta2": "optim.beta2",
    "batch_size": "data.tokens_per_step",
    "epochs": "trainer.max_steps",
    "gpus": "trainer.devices",
    "hidden_size": "model.d_model",
    "learning_rate": "optim.lr_scale",
    "lr": "optim.lr_scale",
    "max_epochs": "trainer.max_steps",
    "patience": "trainer.patience",
}


def groups(schema: type) -> list[str]:
    """Returns the groups that `group=name` chooses files for."""
    sections = [option.name for option in fields(schema) if is_section(option.type)]
    return [*sections, *FILE_GROUPS] if schema is Config else []


def no_such_option(key: str, schema: type) -> str:
    """Returns the line that refuses an unknown option."""
    if RENAMED.get(key) in option_names(schema):
        return f"{key} is now {RENAMED[key]}"
    near = _nearest(key, schema)
    return f"{key}: no such option; " + (f"did you mean {near}?" if near else "--help lists them all")


def _nearest(key: str, schema: type) -> str | None:
    """Returns the option, or the group of files, that was probably meant."""
    known = option_names(schema)
    section, _, name = key.lower().replace("/", ".").rpartition(".")
    if OTHER_NAMES.get(name) in known:
        return OTHER_NAMES[name]
    if section in known:  # an option taken for a section
        return section
    if not section and (group := difflib.get_close_matches(name, groups(schema), n=1, cutoff=0.75)):
        return group[0]
    # Names are compared without their sections first; if two sections have the name, the one that was typed wins.
    by_name: dict[str, str] = {}
    for option in sorted(known, key=lambda option: option.rpartition(".")[0] != section):
        by_name.setdefault(option.rpartition(".")[2], option)
    near = difflib.get_close_matches(name, by_name, n=1) or difflib.get_close_matches(name, known, n=1)
    return by_name.get(near[0], near[0]) if near else None
