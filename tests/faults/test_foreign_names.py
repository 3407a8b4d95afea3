"""Options of Lightning, Hydra, Hugging Face and lightning-hydra-template: each is answered, none is ignored."""

import pytest
from applications import run_application

from aiayn import __version__
from aiayn.config.schema import Config, EvaluateConfig
from aiayn.config.stored import option_names
from aiayn.config.suggestions import ANSWERS, HYDRA_ANSWERS, OTHER_NAMES

# What is typed after `train`, and what the one line must say.
FOREIGN = [
    # Hydra
    ("hydra.run.dir=here", "outputs=DIR and name=NAME"),
    ("hydra.sweep.dir=here", "outputs=DIR and sweep=NAME"),
    ("hydra.sweep.subdir=x", "docs/sweeps.md"),
    ("hydra.output_subdir=x", "outputs=DIR and name=NAME"),
    ("hydra.job.chdir=true", "stays in the working directory"),
    ("hydra.job.name=x", "name=NAME"),
    ("hydra/job_logging=default", "trainer.log_every=N"),
    ("hydra/sweeper=optuna", "rows that are skipped once they are finished"),
    ("hydra/sweeper=ax", "optim.lr_scale=0.5,1,2"),
    ("hydra/sweeper=basic", "rows that are skipped once they are finished"),
    ("hydra.sweeper.params={seed:1}", "train -m key=A,B,C"),
    ("hydra/launcher=submitit_slurm", "in a fixed folder where it can continue"),
    ("hydra/launcher=joblib", "hydra/launcher=processes"),
    ("hydra/launcher=basic", "each job of a sweep needs a process of its own"),
    ("+experiment=quickstart", "leave out the +: experiment=quickstart"),
    ("--experimental-rerun x.pickle", "the same command again continues a run"),
    # Lightning
    ("++gradient_clip_val=0.5", "did you mean trainer.gradient_clip_val?"),
    ("trainer.max_grad_norm=0.5", "did you mean trainer.gradient_clip_val?"),
    ("epochs=3", "did you mean trainer.max_epochs?"),
    ("trainer.min_epochs=3", "trainer.max_epochs=N"),
    ("trainer.val_check_interval=100", "trainer.val_every=N"),
    ("+limit_train_batches=5", "did you mean trainer.limit_train_batches?"),
    ("fast_dev_run=true", "did you mean trainer.fast_dev_run?"),
    ("+trainer.log_every_n_steps=5", "did you mean trainer.log_every?"),
    ("trainer.accumulate_grad_batches=2", "did you mean data.micro_batches?"),
    ("ckpt_path=outputs/x/checkpoints/last.ckpt", "init_from=RUN"),
    ("callbacks=early_stopping", "docs/lightning.md"),
    ("callbacks.early_stopping.patience=3", "callbacks are code"),
    ("patience=3", "trainer.patience"),
    ("strategy=fsdp", "trainer.strategy=auto or ddp"),
    ("trainer.strategy=fsdp", "auto, ddp"),
    ("trainer=ddp", "trainer.devices=N"),
    ("precision=16-mixed", "did you mean trainer.precision?"),
    ("seed_everything=1", "did you mean seed?"),
    ("trainer.default_root_dir=x", "outputs=DIR"),
    # lightning-hydra-template
    ("debug=fdr", "debug=true shows tracebacks"),
    ("logger=[wandb,csv]", "several kinds as logger.kind="),
    ("logger=[tensorboard,csv]", "several kinds as logger.kind="),
    ("logger=many_loggers", "csv, none, tensorboard, wandb"),
    ("paths=default", "data.folder=DIR"),
    ("paths.output_dir=x", "outputs=DIR"),
    ("optimizer=sgd", "Adam is the only one"),
    ("scheduler=cosine", "equation (3)"),
    ("task_name=x", "did you mean name?"),
    ("hparams_search=mnist_optuna", "train -m key=A,B,C"),
    # Hugging Face
    ("--output_dir x", "outputs=DIR and name=NAME"),
    ("--learning_rate=5e-5", "optim.lr_scale=N"),
    ("--num-train-epochs 3", "trainer.max_epochs"),
    ("resume_from_checkpoint=true", "the same command again continues its run"),
    ("per_device_train_batch_size=64", "data.tokens_per_step=N"),
    ("num_train_epochs=3", "did you mean trainer.max_epochs?"),
    ("gradient_accumulation_steps=4", "did you mean data.micro_batches?"),
    ("learning_rate=5e-5", "optim.lr_scale=N"),
    ("optim.lr=5e-5", "optim.lr_scale=N"),
    ("weight_decay=0.01", "there is none"),
    ("fp16=true", "trainer.precision=16-mixed"),
    ("bf16=true", "trainer.precision=bf16-mixed"),
    ("max_grad_norm=1", "did you mean trainer.gradient_clip_val?"),
    ("warmup_ratio=0.1", "optim.warmup_steps=N"),
    ("num_beams=5", "did you mean search.beam_size?"),
    ("report_to=wandb", "logger=wandb"),
    ("eval_steps=100", "trainer.val_every=N"),
    ("save_total_limit=3", "did you mean trainer.average_last?"),
    ("model_name_or_path=t5-small", "init_from=RUN"),
]


@pytest.mark.parametrize("several", [(), ("-m",)], ids=["one", "sweep"])
def test_every_name_of_another_program_is_answered_in_one_line_and_nothing_is_written(
    tmp_path, monkeypatch, subtests, several
):
    monkeypatch.chdir(tmp_path)
    for typed, answer in FOREIGN[:: 3 if several else 1]:  # a sweep refuses with the same code, before it is one
        with subtests.test(typed):
            outcome = run_application("train.py", *several, *typed.split())
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err.startswith("error: ")
            assert outcome.err.count("\n") == 1, outcome.err
            assert answer in outcome.err
            assert list(tmp_path.iterdir()) == []
    assert len(FOREIGN) >= 25


def test_every_answer_names_options_that_exist_and_hides_none():
    known = {*option_names(Config), *option_names(EvaluateConfig)}
    sections = {name.split(".")[0] for name in known if "." in name}
    words = [
        word.split("=")[0].strip(",;:")
        for text in [*ANSWERS.values(), *HYDRA_ANSWERS.values()]
        for word in text.split()
    ]

    assert {word for word in words if word.split(".")[0] in sections and "." in word} - known == set()
    assert set(OTHER_NAMES.values()) <= known
    assert not {name.rpartition(".")[2] for name in option_names(Config)} & set(ANSWERS) - {"strategy"}


def test_evaluate_answers_in_its_own_terms():
    assert "did you mean checkpoint?" in run_application("evaluate.py", "run=x", "ckpt_path=last").err
    assert "run=DIR/NAME" in run_application("evaluate.py", "run=x", "outputs=runs").err


@pytest.mark.parametrize("command", [("train.py",), ("evaluate.py",), ("aiayn",), ("aiayn", "train")])
def test_the_version_is_the_programs_own(command):
    outcome = run_application(*command, "--version")

    assert (outcome.code, outcome.out, outcome.err) == (0, f"aiayn {__version__}\n", "")


def test_a_sentence_in_place_of_a_file_is_told_to_come_through_a_pipe():
    outcome = run_application("aiayn", "translate", "outputs/x", "It's late.")

    assert outcome.code == 3
    assert outcome.err.endswith("""echo 'It'"'"'s late.' | aiayn translate outputs/x\n""")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("ending", [".en", ".de", ".en.gz"])
def test_a_file_name_in_place_of_a_prefix_is_told_to_leave_out_the_language(ending):
    text = ("data=files", f"data.train=my/train{ending}", "data.val=my/dev", "logger=none")
    outcome = run_application("train.py", *text)

    assert outcome.code == 3
    assert f"data.train=my/train{ending}: leave out {ending}: data.train=my/train names both" in outcome.err
