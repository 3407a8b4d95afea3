"""Messages about a wrong command line or file of options, in one line, also for errors that Hydra
finds.

Hydra's errors are told apart by their types; what has none of its own there is refused before Hydra
sees it.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Sweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
    ValidationError,
)

from aiayn.config import program
from aiayn.config.rules import (
    MAX_DIGITS,
    MAX_NAME,
    as_option,
    flatten,
    is_section,
    options_of,
    require,
    require_value,
    written,
)
from aiayn.config.schema import Config
from aiayn.errors import ConfigError

# What composing and checking a configuration raises; OverflowError for a number beyond all floats.
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, OverflowError)

# Groups of files in conf/ that are no section of the options.
FILE_GROUPS = ("ablation", "experiment")

# Settings of Hydra that affect sweeps only. Others have no effect here, or make Hydra write files.
OF_SWEEPS = re.compile(r"hydra[./](launcher|sweeper)|hydra\.(verbose|callbacks)")
OF_ALL = ("hydra.searchpath", "hydra.help")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
IN_BRACES = re.compile(r"[{,]\s*(\w+)\s*:([^,{}]*)")  # the name and the text of each value

# Names that PyTorch Lightning, Hugging Face, fairseq, OpenNMT, JoeyNMT, Marian, Sockeye and
# tensor2tensor have for options of this program, unless their spelling is similar enough. A name
# with a section counts in that section only.
OTHER_NAMES = {
    "optim.peak_lr": (
        "eta lr learning_rate initial_learning_rate max_lr base_lr peak_learning_rate lrate "
        "optim.peak"
    ),
    "optim.warmup_steps": (
        "learning_rate_warmup_steps warmup learning_rate_warmup lr_warmup warmup_ratio"
    ),
    "optim.beta1": "adam_beta1 adam_betas betas optimizer_betas",
    "optim.beta2": "adam_beta2",
    "optim.eps": "adam_eps adam_epsilon epsilon",
    "optim.weight_decay": "wd decay",
    "optim.label_smoothing": "smoothing_factor",
    "optim.lr_scale": "factor noam_factor",
    "data.tokens_per_step": (
        "batch bs batch_size train_batch_size global_batch_size per_device_train_batch_size "
        "batch_type bsz max_sentences mini_batch data.batch_tokens step_tokens"
    ),
    "data.max_tokens_per_device": (
        "max_tokens micro_batch_size tokens_per_batch mini_batch_fit tokens_per_gpu"
    ),
    "data.micro_batches": (
        "grad_accum accumulation_steps accumulate_grad_batches gradient_accumulation_steps "
        "update_freq accum_count batch_multiplier update_interval optimizer_delay"
    ),
    "data.vocab_size": (
        "vocab bpe_size bpe_operations num_operations num_words src_vocab tgt_vocab voc_limit "
        "dim_vocabs"
    ),
    "data.max_length": (
        "max_target_length max_seq_len max_source_positions src_seq_length "
        "max_source_length seq_len"
    ),
    "data": "dataset dataset.name",
    "data.folder": "cache_dir",
    "data.src_lang": "src source_language lang_pair lang langs language_pair pair language",
    "data.tgt_lang": "tgt trg target target_language",
    "data.train": (
        "data_path trainpref train_file train_data train_src data_dir train_sets train_path path "
        "data.dir data.root"
    ),
    "data.val": (
        "dev validation validpref valid_data validation_file dev_file valid_sets dev_path"
    ),
    "data.test": "testpref test_file test_data test_path test_set",
    "data.tokenizer": (
        "bpe bpe_codes spm sentencepiece subword_model src_subword_model tokenizer_path "
        "vocabs vocab_file"
    ),
    "data.num_workers": "dataloader_num_workers",
    "data.source": "dataset_name",
    "model.n_layers": "encoder_layers num_hidden_layers num_encoder_layers enc_depth depth n",
    "model.n_decoder_layers": "dec_layers dec_depth",
    "model.d_model": (
        "dmodel hidden_size emb_size embed_dim embedding_dim encoder_embed_dim n_embd rnn_size "
        "model_dim dim dim_emb hidden_dim embedding_size word_vec_size num_embed "
        "transformer_model_size"
    ),
    "model.d_ff": (
        "ffn ffn_dim ff_size ffn_size dim_feedforward filter_size transformer_ff "
        "encoder_ffn_embed_dim intermediate_size ff nhid transformer_dim_ffn "
        "transformer_feed_forward_num_hidden"
    ),
    "model.n_heads": (
        "attention_heads encoder_attention_heads num_attention_heads decoder_attention_heads "
        "transformer_heads transformer_attention_heads h"
    ),
    "model.tie_embeddings": (
        "share_all_embeddings weight_tying weight_tying_type share_vocab shared_vocab "
        "share_decoder_input_output_embed shared_embedding_and_softmax_weights"
    ),
    "model.dropout": (
        "dropout_prob dropout_rate drop embed_dropout transformer_dropout hidden_dropout_prob "
        "layer_prepostprocess_dropout"
    ),
    "model.attention_dropout": "transformer_dropout_attention",
    "model.positions": "model.pos position_encoding pos_encoding positional_encoding",
    "model.max_positions": "model.max_len max_position_embeddings",
    "model": "arch architecture model_size model_type hparams_set",
    "trainer.max_steps": (
        "iterations max_iter max_updates steps train_steps training_steps max_update updates "
        "after_batches total_steps"
    ),
    "trainer.max_epochs": "train_epochs after_epochs epoch num_train_epochs",
    "trainer.devices": (
        "ngpus num_gpu gpus num_gpus n_gpus n_gpu gpu_ranks world_size nproc_per_node "
        "distributed_world_size worker_gpu"
    ),
    "trainer.accelerator": "device use_cuda use_cpu no_cuda cuda gpu cpu",
    "trainer.precision": "fp16 bf16 amp dtype half memory_efficient_fp16 tf32",
    "trainer.val_every": (
        "val_steps val_interval validation_steps evaluation_strategy eval_steps eval_interval "
        "evaluation_steps validation_freq valid_steps val_check_interval check_val_every_n_epoch "
        "validate_interval_updates valid_freq val_freq eval_strategy"
    ),
    "trainer.checkpoint_every": (
        "save_steps save_every save_interval save_interval_updates save_checkpoint_steps "
        "every_n_train_steps save_freq save_strategy checkpoint_interval"
    ),
    "trainer.log_every": (
        "log_steps logging_steps logging_freq log_interval log_every_n_steps report_every "
        "disp_freq print_every"
    ),
    "trainer.average_last": (
        "average keep_best_checkpoints keep_last keep_last_epochs keep_checkpoint "
        "save_total_limit avg_checkpoints save_top_k keep_last_params keep_checkpoint_max "
        "average_checkpoints n_avg"
    ),
    "trainer.patience": (
        "patience_epochs patience_steps early_stop_patience early_stopping early_stopping_patience "
        "stop_after early_stop early_stopping_rounds max_num_checkpoint_not_improved"
    ),
    "trainer.best_metric": (
        "eval_metric metric_for_best_model best_checkpoint_metric early_stopping_metric monitor"
    ),
    "trainer.gradient_clip_val": "clip clip_norm grad_clip max_grad_norm clip_grad_norm",
    "trainer.limit_train_steps": "limit_train_batches",
    "trainer.overfit_steps": "overfit_batches",
    "trainer.num_nodes": "nodes num_machines",
    "trainer.strategy": "ddp_backend ddp fsdp deepspeed",
    "trainer.compile": "torch_compile",
    "trainer.val_bleu_sentences": "eval_bleu predict_with_generate",
    "search.beam_size": "beams beam num_beams beam_width beam_search generation_num_beams",
    "search.length_penalty": "lenpen alpha beam_alpha length_alpha lp_alpha normalize",
    "search.max_extra_tokens": (
        "max_output_length max_decode_length max_output_len max_len_b search.max_len "
        "search.max_length generation_max_length"
    ),
    "logger.project": "wandb_project",
    "logger": "report_to use_wandb wandb tensorboard",
    "name": (
        "checkpoint_dir ckpt_dir save_path output_path work_dir workdir output_dir save_dir "
        "out_dir model_dir run_name exp_name experiment_name save_model log_dir outdir logdir "
        "overwrite overwrite_output_dir"
    ),
    "outputs": "default_root_dir",
    "init_from": (
        "finetune finetune_from pretrained load_model finetune_from_model model_name_or_path"
    ),
    "seed": "random_seed manual_seed seed_everything random_state",
    "extensions": "user_dir plugins",
    "checkpoint": "ckpt ckpt_path",
}
RESUMES = (
    "resume resume_from resume_from_checkpoint resume_training resume_from_ckpt ckpt_path ckpt "
    "checkpoint checkpoint_path load_checkpoint load_from train_from from_checkpoint restore "
    "restore_from restore_file continue restart"
)
# What the paper fixes and other toolkits make an option.
OF_CODE = (
    "optimizer optim.name optim.type scheduler lr_scheduler lr_schedule schedule "
    "lr_scheduler_type learning_rate_schedule decay_method scheduling noam criterion loss "
    "activation activation_fn norm normalization norm_first pre_norm initializer param_init"
)
OTHER_TOOLKITS = {name: option for option, names in OTHER_NAMES.items() for name in names.split()}


@contextmanager
def hydra_errors_explained(schema: type) -> Iterator[None]:
    """Raises ConfigError for what Hydra raises, in one line: key, rule, nearest key or choice."""
    try:
        yield
    except COMPOSITION_ERRORS as error:
        raise ConfigError(_one_line(error, schema)) from error


def _one_line(error: BaseException, schema: type) -> str:
    cause: BaseException | None = error
    while cause := cause.__cause__ or cause.__context__:
        if isinstance(cause, ConfigError):  # of a resolver
            return str(cause)
    file = None  # of the configuration, if the error is in one
    while isinstance(error, HydraException):
        if isinstance(error, OverrideParseException):
            return _unreadable_override(error.override or "", schema)
        if isinstance(error, MissingConfigException):
            choices = ", ".join(error.options or ())
            remedy = f": choose one of {choices}" if choices else " in the configuration's folder"
            return f"no file '{error.missing_cfg_file}'{remedy}"
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, COMPOSITION_ERRORS):
            break
        file = re.match("In '([^']+)'", str(error)) or file
        error = inner
    if isinstance(error, OverflowError):
        key = re.search(r"full_key: (\S+)", str(error))
        where = key[1] if key else "a file of options"
        return f"{where}: contains a number that is too large for any option; write a smaller one"
    if not isinstance(error, OmegaConfBaseException):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    message = _refused_value(error, schema)
    if file is None:
        return message
    if error.full_key == file[1].partition("/")[0] in FILE_GROUPS:
        message = "its first line must be # @package _global_, or its options have no section"
    return f"{file[1]}: {message}"


def _unreadable_override(override: str, schema: type) -> str:
    key, sign, value = override.partition("=")
    if sign:  # the value is not repeated: it may be a secret
        quoted = '["value","value"]' if value.startswith("[") else '"value"'
        return f"{key}: its value cannot be read; quote it twice: '{key}={quoted}'"
    if schema is not Config:
        return f"{key}: not in the form key=value; name a run with run={key or 'outputs/NAME'}"
    name = key if key in {*options_of(schema), *groups(schema)} else "key"
    return f"{key}: not in the form key=value; write {name}=value, without spaces"


def _refused_value(error: OmegaConfBaseException, schema: type) -> str:
    key = error.full_key or ""
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)):
        return no_such_option(key, schema)
    option = options_of(schema).get(key.partition("[")[0])
    if isinstance(error, ValidationError) and option is not None:
        rule = _rule_of_type(option.type, key, error.value)
        if rule:
            return f"{written(key, as_option(error.value))}: must be {rule}"
    reason = (error.msg or str(error)).strip().splitlines()[0]
    return f"{key}: {reason}" if key and key not in reason else reason


def _rule_of_type(declared: Any, key: str, value: Any) -> str:
    """Returns what a value of an option must be, from the option's type; "" for other types than
    these.
    """
    expected = get_args(declared)[0] if isinstance(declared, UnionType) else declared
    if key.endswith("]"):  # data.weights[0], a value in a list
        [expected] = get_args(expected)
    if get_origin(expected) is list:
        return f"a list; write {key}=[{as_option(value)}]"
    if expected is int and isinstance(value, float) and value.is_integer():
        return f"a whole number; write {value:.0f}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(expected, "")


def refuse_overrides(overrides: Sequence[str], schema: type, multirun: bool = False) -> None:
    """Raises ConfigError for overrides that Hydra would misread, ignore, or refuse without naming
    the key.

    Raises OverrideParseException for those that are no key=value.
    """
    names = ["hydra", *groups(schema), *options_of(schema)]
    first_names = {name.partition(".")[0] for name in names}
    parser = OverridesParser.create()
    for override in overrides:
        key, sign, text = override.lstrip("+").partition("=")
        require(len(key) <= MAX_NAME, f"{key:.60}...: no such option; --help lists them all")
        require_value(
            re.search(rf"\d{{{MAX_DIGITS},}}", text) is None,
            key,
            text,
            f"no option takes a number of {MAX_DIGITS} digits or more; write a smaller one",
        )
        require(
            not override.startswith("~"),
            f"{override}: options cannot be removed; set it to another value with key=value",
        )
        require(key != "", f"{override}: a value without a key; write key=value, without spaces")
        if sign and re.split("[./]", key)[0] not in first_names:
            raise ConfigError(no_such_option(key, schema))
        require(
            not key.startswith("hydra.sweeper.params"),
            f"{key}: write the values to search as options: 'model.dropout=interval(0,0.3)', "
            "or in a file of options",
        )
        if OF_SWEEPS.match(key):
            require(schema is Config, f"{override}: only works in sweeps of train; leave it out")
            require(multirun, f"{override}: only works in a sweep; add -m, or leave it out")
        elif key.startswith("hydra") and not key.startswith(OF_ALL):
            require(
                override.lower() == "hydra.job.chdir=false",
                f"{key}: is not supported, because Hydra writes no files here; set outputs=, "
                "name= or sweep= (a run is the folder OUTPUTS/NAME, a sweep "
                "OUTPUTS/sweeps/SWEEP)",
            )
        [parsed] = parser.parse_overrides([override])
        choices = parsed.value()
        require(
            not (
                isinstance(choices, ChoiceSweep)
                and any(isinstance(choice, Sweep | Glob) for choice in choices.list)
            ),
            f"{override}: no glob(), range() or interval() among several values; write all values, "
            f"or one pattern: {key}=glob([A*,B])",
        )
        require(
            multirun or not parsed.is_sweep_override(),
            f"{override}: several values are a sweep; add -m, or write [A,B] for a list",
        )
        if key in groups(schema):
            value: Any = parsed.value()
            files = value.list if isinstance(value, ChoiceSweep) else [value]
            # An interpolation, perhaps of a secret, would be repeated where there is no such file
            is_name = [isinstance(file, (str, dict, Glob, Sweep)) for file in files]
            require(
                all(is_name) and not any("${" in file for file in files if isinstance(file, str)),
                f"{override}: give the name of one file; --help lists all groups and files",
            )


def values_of(override: str) -> dict[str, Any]:
    """Returns the options that an override sets, one or, as in trainer={max_steps: 3}, several."""
    key, _, value = override.lstrip("+").partition("=")
    if value.startswith("{"):
        with suppress(HydraException):  # which says what is wrong with it when it composes
            section: Any = OverridesParser.create().parse_override(override).value()
            return flatten(section, f"{key}.")
    return {key: value}


def refuse_repeated(overrides: Sequence[str], schema: type, sweep_flag: str | None = None) -> None:
    """Raises ConfigError for a key that is given twice; Hydra would silently take the last
    value.

    sweep_flag: what still has to be written for a sweep over the values; None where there are no
    sweeps.
    """
    values: dict[str, list[str]] = {}
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        texts = values_of(override)
        if value.startswith("{"):
            # Of equal names in the braces, the parser returns the last alone.
            in_braces: dict[str, list[str]] = {}
            for name, text in IN_BRACES.findall(QUOTED.sub("...", value)):
                in_braces.setdefault(f"{key}.{name}", []).append(text.strip())
            for name in in_braces.keys() & texts.keys():
                values.setdefault(name, []).extend(in_braces[name][:-1])
        for name, text in texts.items():
            values.setdefault(name, []).append(str(text))
    for key, repeated in values.items():
        if len(repeated) > 1:
            remedy = _instead_of_repeating(key, repeated, schema, sweep_flag)
            repetition = f"given {len(repeated)} times, {' and '.join(repeated)}"
            raise ConfigError(f"{key}: {repetition}; {remedy}")


def _instead_of_repeating(
    key: str, repeated: Sequence[str], schema: type, sweep_flag: str | None
) -> str:
    """Returns what to write in the place of a key that is given several times."""
    distinct = list(dict.fromkeys(",".join(repeated).split(",")))
    # Equal values need no sweep; ranges, patterns and lists are no members of one.
    if len(distinct) == 1 or any(set("([{") & set(value) for value in repeated):
        return "leave one out"
    option, values = options_of(schema).get(key), ",".join(distinct)
    remedy = "leave one out"
    if key == "ablation" and (row_of_both := _row_of_both(repeated)):
        remedy += f", or train one row with both: {row_of_both}"
    if option is not None and option.type in (Any, list[str]):
        remedy += f", or write a list: {key}=[{values}]"
    elif sweep_flag is not None and key not in ("name", "sweep", "outputs"):
        remedy += f", or sweep over the values: {sweep_flag}{key}={values}"
    return remedy


def _row_of_both(rows: Sequence[str]) -> str | None:
    """Returns the arguments for one row that changes what all these files of conf/ablation/ change;
    None where there is no such file, or two of them change the same option.
    """
    files = [program.conf_folder() / "ablation" / f"{row}.yaml" for row in rows]
    if not all(file.is_file() for file in files):
        return None
    contents: Any = [OmegaConf.to_container(OmegaConf.load(file)) for file in files]
    changes = [flatten(options) for options in contents]
    n_changes = sum(len(options) for options in changes)
    if n_changes > len(set().union(*changes)):
        return None
    arguments = [f"ablation={rows[0]}"]
    for options in changes[1:]:
        arguments += [written(key, value) for key, value in options.items()]
    return " ".join(arguments)


def groups(schema: type) -> list[str]:
    """Returns the groups that `group=name` chooses files for."""
    sections = [option.name for option in fields(schema) if is_section(option.type)]
    return [*sections, *FILE_GROUPS] if schema is Config else []


def no_such_option(key: str, schema: type) -> str:
    """Returns the line that refuses an unknown option, with the option or group that was probably
    meant.
    """
    from aiayn.config.evaluate import EvaluateConfig

    of_train = schema is not Config and key in (*options_of(Config), *groups(Config))
    if schema is Config and key.lower().rpartition(".")[2] in RESUMES.split():
        remedy = "the same command resumes a run; init_from=RUN starts a new one from its weights"
    elif schema is Config and {key.lower(), key.lower().rpartition(".")[2]} & {*OF_CODE.split()}:
        remedy = "the paper's is used; extensions=[FILE], a file of your own, replaces it"
    elif near := nearest_option(key, schema):
        remedy = f"did you mean {near}?"
    elif schema is Config and key in options_of(EvaluateConfig):
        remedy = f"evaluate has it: {program.typed('evaluate')} {key}=VALUE"
    else:
        remedy = "leave it out" if of_train else "--help lists them all"
    return f"{key}: {'an option of train' if of_train else 'no such option'}; {remedy}"


def nearest_option(key: str, schema: type) -> str | None:
    """Returns the option or group that a misspelt key meant, or None.

    The same option in another section comes first, then what other toolkits call by that name, then
    likeness.
    """
    names = [*groups(schema), *options_of(schema)]
    section, _, last = key.lower().replace("/", ".").replace("-", "_").rpartition(".")
    if section in options_of(schema):  # data.train.en: an option taken for a section
        return section
    by_last = {name.rpartition(".")[2]: name for name in reversed(names)}
    option = OTHER_TOOLKITS.get(f"{section}.{last}")
    if option is None and last in by_last:
        return by_last[last]
    option = option or OTHER_TOOLKITS.get(last)
    if option:
        return option if option in names else by_last.get(option.rpartition(".")[2])
    similar = [by_last[name] for name in difflib.get_close_matches(last, by_last, n=3, cutoff=0.75)]
    in_section = (name for name in similar if name.rpartition(".")[0] == section)
    return next(iter([*in_section, *similar]), None)
