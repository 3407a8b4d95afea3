"""What to say about an option that does not exist: its new name, or the option that was probably meant."""

import difflib
from dataclasses import fields

from aiayn.config.schema import Options
from aiayn.config.stored import is_section, option_names

# Groups of files in conf/ that are no section of the options.
FILE_GROUPS = ("ablation", "experiment")

_TRIAL = "for a short trial set trainer.fast_dev_run=true"
_PLACE = "a run is the folder OUTPUTS/NAME: set outputs=DIR and name=NAME"


def _each(grouped: dict[str, str]) -> dict[str, str]:
    """Turns {"a b": "c"} into {"a": "c", "b": "c"}."""
    return {name: answer for names, answer in grouped.items() for name in names.split()}


# What options of the same meaning are called in Lightning, Hugging Face's Trainer and lightning-hydra-template.
OTHER_NAMES = _each(
    {
        "accumulate_grad_batches gradient_accumulation_steps": "data.micro_batches",
        "adam_beta1": "optim.beta1",
        "adam_beta2": "optim.beta2",
        "adam_epsilon": "optim.eps",
        "batch_size": "data.tokens_per_step",
        "ckpt_path": "checkpoint",  # of `evaluate`
        "dataloader_num_workers": "data.num_workers",
        "dataset_name": "data.hub_path",
        "epochs num_train_epochs": "trainer.max_epochs",
        "every_n_train_steps save_steps": "trainer.checkpoint_every",
        "gpus": "trainer.devices",
        "hidden_size": "model.d_model",
        "intermediate_size": "model.d_ff",
        "label_smoothing_factor": "optim.label_smoothing",
        "log_every_n_steps logging_steps": "trainer.log_every",
        "max_grad_norm": "trainer.gradient_clip_val",
        "max_new_tokens": "search.max_extra_tokens",
        "max_seq_length max_source_length": "data.max_length",
        "num_attention_heads": "model.n_heads",
        "num_beams": "search.beam_size",
        "num_hidden_layers": "model.n_layers",
        "run_name task_name": "name",
        "save_total_limit": "trainer.average_last",
        "seed_everything": "seed",
        "source_lang": "data.src_lang",
        "target_lang": "data.tgt_lang",
        "torch_compile": "trainer.compile",
        "train_file": "data.train",
        "validation_file": "data.val",
        "test_file": "data.test",
    }
)

# Names from there for which no option is the same, and what to do instead.
ANSWERS = _each(
    {
        "bf16": "set trainer.precision=bf16-mixed",
        "callbacks": "callbacks are code, not options; docs/lightning.md shows where to add one",
        "check_val_every_n_epoch eval_steps eval_strategy evaluation_strategy val_check_interval": (
            "validation is counted in steps, trainer.val_every=N"
        ),
        "ckpt_path resume_from_checkpoint": (
            "the same command again continues its run; weights of another run are the start of a new one with "
            "init_from=RUN"
        ),
        "default_root_dir output_dir save_dir": _PLACE,
        "do_eval do_predict do_train": "aiayn train trains, aiayn evaluate scores; -m does both for every row",
        "early_stopping": "set trainer.patience=N: validations without a better trainer.best_metric until the run ends",
        "enable_checkpointing": "checkpoints are always saved, every trainer.checkpoint_every=N steps",
        "min_epochs min_steps": "a training ends with trainer.max_steps=N or trainer.max_epochs=N; there is no minimum",
        "fp16": "set trainer.precision=16-mixed, for GPUs that do not compute in bfloat16",
        "gradient_checkpointing": "not offered; lower data.max_tokens_per_device if memory is short",
        "hparams_search": "sweep over given values: train -m key=A,B,C",
        "learning_rate lr lr_scheduler_type scheduler": (
            "the learning rate is equation (3) of the paper: optim.lr_scale=N multiplies it, optim.warmup_steps=N sets "
            "its peak"
        ),
        "model_name_or_path": "model=tiny, base or big is trained from scratch; init_from=RUN starts from another run",
        "optimizer": (
            "Adam is the only one; its options are optim.beta1, optim.beta2, optim.eps, and for its rate "
            "optim.lr_scale and optim.warmup_steps"
        ),
        "overwrite_output_dir": "a run is never overwritten: take another name=, or remove its folder",
        "paths": "set outputs=DIR for runs and data.folder=DIR for prepared text",
        "per_device_eval_batch_size per_device_train_batch_size train_batch_size": (
            "batches are counted in tokens: data.tokens_per_step=N is the batch of a step, "
            "data.max_tokens_per_device=N what one device computes at a time"
        ),
        "report_to": "choose with logger=wandb, tensorboard, csv or none",
        "save_strategy": "checkpoints are counted in steps, trainer.checkpoint_every=N",
        "save_top_k": "the last trainer.average_last=N checkpoints are kept, and averaged at the end",
        "strategy": "write trainer.strategy=auto or ddp; sharding such as fsdp is not offered",
        "warmup_ratio": "warm-up is counted in steps, optim.warmup_steps=N",
        "weight_decay": "there is none, as in section 5.3 of the paper; see model.dropout and optim.label_smoothing",
    }
)

# Values that some options have in lightning-hydra-template.
_DEVICES = "there are no such files; set trainer.accelerator=gpu, trainer.devices=N and trainer.strategy=ddp"
VALUES = {
    "debug": dict.fromkeys(
        ("default", "fdr", "limit", "overfit", "profiler"), f"debug=true shows tracebacks; {_TRIAL}"
    ),
    "trainer": dict.fromkeys(("cpu", "gpu", "mps", "ddp", "ddp_sim", "fsdp", "deepspeed"), _DEVICES),
}

# Hydra's own settings that would have no effect here, or disturb a run.
_HYDRA_PLACE = f"Hydra writes no files here; {_PLACE}"
HYDRA_ANSWERS = {
    "hydra/hydra_logging": "what a run prints is fixed; trainer.log_every=N sets how often",
    "hydra/job_logging": "what a run prints is fixed; trainer.log_every=N sets how often",
    "hydra.job.chdir": "a run stays in the working directory; set outputs=DIR for another root of all runs",
    "hydra.job.name": _HYDRA_PLACE,
    "hydra.output_subdir": _HYDRA_PLACE,
    "hydra.run.dir": _HYDRA_PLACE,
    "hydra.sweep.dir": "a sweep is the folder OUTPUTS/sweeps/SWEEP: set outputs=DIR and sweep=NAME",
    "hydra.sweeper.params": "give the values on the command line: train -m key=A,B,C",
    "hydra.sweep.subdir": "a row's folder is named by what it changes; docs/sweeps.md has the rules",
}
LAUNCHERS, SWEEPERS = ("processes", "slurm"), ("grid",)


def foreign_setting(argument: str, schema: type) -> str | None:
    """Returns the line that refuses an argument of other programs' habits; None if there is nothing to say."""
    key, sign, value = argument.lstrip("+").partition("=")
    if key.startswith(("hydra.", "hydra/")):
        return _hydra_setting(key, value)
    if argument.startswith("+") and key in groups(schema):
        # A value that is no file name may be anything, so it is not repeated.
        name = value if value.replace("_", "").isalnum() else "NAME"
        return f"+{key}: leave out the +: {key}={name}"
    if key == "logger" and value.startswith("["):
        return f"logger={value}: give the name of one file, and several kinds as logger.kind={value}"
    if schema is Options and value in VALUES.get(key, {}):
        return f"{key}={value}: {VALUES[key][value]}"
    name = key.lstrip("-").replace("-", "_")  # --max-epochs
    if (sign or argument.startswith("--")) and name not in option_names(schema):
        return _answer(name, key, schema)
    return None


def _hydra_setting(key: str, value: str) -> str | None:
    if key == "hydra/launcher" and value not in LAUNCHERS:
        return (
            f"hydra/launcher={value}: each job of a sweep needs a process of its own, in a fixed folder where it can "
            "continue, and is scored after it; hydra/launcher=processes, the default, and hydra/launcher=slurm do that"
        )
    if key == "hydra/sweeper" and value not in SWEEPERS:
        return (
            f"hydra/sweeper={value}: a sweep is a table of rows that are skipped once they are finished, so their "
            "values are given, as in optim.lr_scale=0.5,1,2; no search chooses them"
        )
    if key in HYDRA_ANSWERS and (key, value.lower()) != ("hydra.job.chdir", "false"):
        return f"{key}: {HYDRA_ANSWERS[key]}"
    return None


def _answer(name: str, key: str, schema: type) -> str | None:
    """Returns the line about an option that other programs have and this one lacks."""
    if schema is not Options:
        return _answer_of_evaluate(name, key, schema)
    answer = ANSWERS.get(name.lower().replace("/", ".").rpartition(".")[2])
    return f"{key}: no such option; {answer}" if answer else None


def _answer_of_evaluate(name: str, key: str, schema: type) -> str | None:
    """Returns the line about an option that only training has."""
    if name == "outputs":
        return f"{key}: no such option; the run's whole path is given, run=DIR/NAME"
    if name not in option_names(Options) and name not in groups(Options):
        return None
    near = None if name in groups(Options) else _nearest(name, schema)
    return f"{key}: an option of train; " + (f"did you mean {near}?" if near else "--help lists those of evaluate")


def groups(schema: type) -> list[str]:
    """Returns the groups that `group=name` chooses files for."""
    sections = [option.name for option in fields(schema) if is_section(option.type)]
    return [*sections, *FILE_GROUPS] if schema is Options else []


def no_such_option(key: str, schema: type) -> str:
    """Returns the line that refuses an unknown option."""
    if answer := _answer(key, key, schema):
        return answer
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
