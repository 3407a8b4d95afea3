"""Mistakes on command lines, all in one fresh interpreter: one line each, at once, before torch is
loaded.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT, TEXT, TINY, run_application, slow_but, write_text

# A command line, and what its one line must say: the key, then the rule or the nearest valid key.
MISTAKES = [
    # keys
    ("train.py model.n_head=4", "model.n_head:", "did you mean model.n_heads?"),
    ("train.py +model.n_head=4", "model.n_head:", "did you mean model.n_heads?"),
    ("train.py model/n_heads=4", "model/n_heads:", "did you mean model.n_heads?"),
    ("train.py optim.max_steps=9", "optim.max_steps:", "did you mean trainer.max_steps?"),
    ("train.py dropout=0.2", "dropout:", "did you mean model.dropout?"),
    ("train.py +trainer.callbacks=[a]", "trainer.callbacks:", "--help lists them all"),
    ("train.py data.train={en:x}", "data.train=", "a prefix of text files"),
    ("train.py data.train.en=x", "data.train.en:", "did you mean data.train?"),
    ("train.py hydra.run.dirr=x", "hydra.run.dirr:", "set outputs=, name= or sweep="),
    ("train.py max_steps=5", "max_steps:", "did you mean trainer.max_steps?"),
    ("train.py 'trainer={max_stepz: 3}'", "trainer.max_stepz:", "did you mean trainer.max_steps?"),
    ("train.py overfit_batches=3", "overfit_batches:", "did you mean trainer.overfit_steps?"),
    (
        "train.py trainer.limit_train_batches=3",
        "trainer.limit_train_batches:",
        "did you mean trainer.limit_train_steps?",
    ),
    ("train.py trainer.max_time=1h", "trainer.max_time=1h:", "DD:HH:MM:SS"),
    (
        "train.py trainer.max_time=99999999999:00:00:00",
        "trainer.max_time=99999999999:00:00:00:",
        "DD:HH:MM:SS",
    ),
    ("train.py data.train=my/train", "data.val is missing", "data.val=PREFIX"),
    # what other toolkits call it
    ("train.py lr=0.1", "lr:", "did you mean optim.peak_lr?"),
    ("train.py optim.learning_rate=0.1", "optim.learning_rate:", "did you mean optim.peak_lr?"),
    ("train.py data.batch_size=64", "data.batch_size:", "did you mean data.tokens_per_step?"),
    ("train.py trainer.gpus=2", "trainer.gpus:", "did you mean trainer.devices?"),
    ("train.py model.hidden_size=64", "model.hidden_size:", "did you mean model.d_model?"),
    (
        "train.py -m hydra/sweeper=optuna 'hydra.sweeper.params={model.dropout: 1}'",
        "hydra.sweeper.params:",
        "interval(0,0.3)",
    ),
    (
        "train.py 'trainer={max_steps: 3}' trainer.max_steps=4",
        "trainer.max_steps:",
        "given 2 times, 3 and 4; leave one out",
    ),
    (
        "train.py model.n_heads=8 'model={n_heads:4}'",
        "model.n_heads:",
        "given 2 times, 8 and 4; leave one out",
    ),
    (
        "train.py 'model={dropout: 0.2, n_heads: 4, dropout: 0.3}'",
        "model.dropout:",
        "given 2 times, 0.2 and 0.3; leave one out",
    ),
    (
        "train.py experiment=quickstart data.train=my/train",
        "data.train=my/train: the built-in corpus, data=phrasebook, has its own text",
        "data.source=files",
    ),
    ("train.py trainer.devices=auto", "trainer.devices=auto:", "must be a whole number"),
    ("train.py dim-emb=64", "dim-emb:", "did you mean model.d_model?"),
    ("train.py max_sentences=64", "max_sentences:", "did you mean data.tokens_per_step?"),
    ("train.py hparams_set=x", "hparams_set:", "did you mean model?"),
    ("train.py search.max_len=9", "search.max_len:", "did you mean search.max_extra_tokens?"),
    ("train.py model.max_len=9", "model.max_len:", "did you mean model.max_positions?"),
    ("train.py trainer.patience_epochs=3", "trainer.patience_epochs:", "mean trainer.patience?"),
    ("train.py val_steps=500", "val_steps:", "did you mean trainer.val_every?"),
    ("train.py max_iter=500", "max_iter:", "did you mean trainer.max_steps?"),
    ("train.py optim.eta=0.1", "optim.eta:", "did you mean optim.peak_lr?"),
    ("train.py checkpoint_dir=x", "checkpoint_dir:", "did you mean name?"),
    ("train.py dropout_prob=0.1", "dropout_prob:", "did you mean model.dropout?"),
    ("train.py finetune_from=x", "finetune_from:", "did you mean init_from?"),
    ("train.py lr_scheduler=x", "lr_scheduler:", "extensions=[FILE], a file of your own"),
    ("train.py optim.name=sgd", "optim.name:", "the paper's is used"),
    ("train.py bucket_size=9", "bucket_size:", "--help lists them all"),
    ("train.py resume=true", "resume:", "the same command resumes a run"),
    (
        "train.py trainer.resume_from_checkpoint=x",
        "trainer.resume_from_checkpoint:",
        "init_from=RUN",
    ),
    ("train.py checkpoint=last", "checkpoint:", "the same command resumes a run"),
    ("train.py trainer.checkpoint=last", "trainer.checkpoint:", "init_from=RUN"),
    ("train.py checkpoint_path=x", "checkpoint_path:", "the same command resumes a run"),
    ("train.py total_steps=500", "total_steps:", "did you mean trainer.max_steps?"),
    ("train.py model.h=4", "model.h:", "did you mean model.n_heads?"),
    ("train.py model.N=4", "model.N:", "did you mean model.n_layers?"),
    ("train.py optim.peak=0.001", "optim.peak:", "did you mean optim.peak_lr?"),
    ("train.py cache_dir=x", "cache_dir:", "did you mean data.folder?"),
    ("train.py dataset.name=x", "dataset.name:", "did you mean data?"),
    ("train.py model.pos=learned", "model.pos:", "did you mean model.positions?"),
    ("train.py split=test", "split: no such option; evaluate has it:", "evaluate.py split=VALUE"),
    ("evaluate.py run=x ckpt=y", "ckpt:", "did you mean checkpoint?"),
    ("evaluate.py run=x test_set=y", "test_set:", "did you mean test?"),
    ("evaluate.py run=x num_beams=2", "num_beams:", "did you mean search.beam_size?"),
    ("evaluate.py run=x gpus=2", "gpus:", "did you mean devices?"),
    # keys that are given twice
    (
        "train.py model.dropout=0.1 seed=1 +model.dropout=0.3",
        "model.dropout:",
        "-m model.dropout=0.1,0.3",
    ),
    (
        "train.py ablation=a_h4 ablation=b_dk16",
        "ablation: given 2 times",
        "-m ablation=a_h4,b_dk16",
    ),
    (
        "train.py -m ablation=a_h4 ablation=b_dk16",
        "ablation:",
        "sweep over the values: ablation=a_h4,b_dk16",
    ),
    ("train.py model=tiny model=big", "model: given 2 times", "-m model=tiny,big"),
    ("evaluate.py run=x run=y", "run: given 2 times", "-m run=x,y"),
    (
        "train.py ablation=a_h4 ablation=b_dk16 ablation=d_ls00",
        "ablation: given 3 times",
        "one row with both: ablation=a_h4 model.d_k=16 optim.label_smoothing=0.0",
    ),
    ("train.py ablation=a_h4 ablation=a_h1", "given 2 times", "leave one out, or sweep over"),
    ("train.py name=a name=b", "name: given 2 times", "b; leave one out\n"),
    ("train.py seed=1 seed=1", "seed: given 2 times", "1; leave one out\n"),
    ("train.py -m seed=1,2 seed=2,3", "seed: given 2 times", "the values: seed=1,2,3"),
    (
        "train.py -m ablation=a_h4 'ablation=glob(c_*)'",
        "ablation: given 2 times",
        "glob(c_*); leave one out\n",
    ),
    (
        "train.py data.train=a data.train=b",
        "data.train: given 2 times",
        "write a list: data.train=[a,b]",
    ),
    ("train.py extensions=a.py extensions=b.py", "extensions:", "extensions=[a.py,b.py]"),
    # what waits for a validation that never comes
    (
        "train.py trainer.patience=3 trainer.limit_val_batches=0",
        "trainer.patience=3:",
        "trainer.limit_val_batches=0",
    ),
    (
        "train.py trainer.patience=3 trainer.max_steps=99 trainer.val_every=100",
        "trainer.patience=3:",
        "only the end is validated",
    ),
    # groups and their files
    ("train.py modle=big", "modle:", "did you mean model?"),
    ("train.py +experiments=multi30k", "experiments:", "did you mean experiment?"),
    ("train.py model=bigg", "'model/bigg':", "auto, base, big,"),
    ("train.py model=3", "model=3:", "name of one file"),
    ("train.py model=big,base", "model=big,base", "-m"),
    ("train.py ablation=a_h3", "'ablation/a_h3':", "a_h1, a_h16, a_h32, a_h4"),
    # what is no key=value
    ("train.py model.n_heads 4", "model.n_heads:", "write model.n_heads=value"),
    ("train.py model.n_heads =4", "model.n_heads:", "without spaces"),
    ("train.py =4", "=4:", "key=value, without spaces"),
    ("train.py quickstart", "quickstart:", "write key=value"),
    ("train.py ~model.dropout", "~model.dropout:", "to another value"),
    ("train.py --model.n_heads=4", "--model.n_heads:", "write model.n_heads=VALUE"),
    ("train.py --epochs 10", "--epochs", "options are written key=value"),
    ("train.py --cfg everything", "everything", "--help lists them"),
    ("train.py name=x=y", "name:", "'name=\"value\"'"),
    ("train.py model.d_model='${nothing}'", "model.d_model:", "'nothing' not found"),
    # types
    ("train.py model.n_heads=eight", "model.n_heads=eight:", "must be a whole number"),
    ("train.py trainer.max_steps=1e5", "trainer.max_steps=100000.0:", "write 100000"),
    ("train.py trainer.max_steps=1.5", "trainer.max_steps=1.5:", "must be a whole number"),
    ("train.py model.attention_dropout=null", "model.attention_dropout=null:", "must be a number"),
    ("train.py optim.beta1=high", "optim.beta1=high:", "must be a number"),
    ("train.py data.weights=[a]", "data.weights[0]=a:", "must be a number"),
    ("train.py extensions=my.py", "extensions=my.py:", "must be a list; write extensions=[my.py]"),
    ("train.py data.symbols=[<2de>]", "data.symbols:", '\'data.symbols=["value","value"]\''),
    ("train.py name=[a]", "name=['a']:", "must be text"),
    ("train.py debug=perhaps", "debug=perhaps:", "must be true or false"),
    ("train.py seed=1,2", "seed=1,2:", "add -m"),
    # values
    ("train.py trainer.devices=0", "trainer.devices=0:", "at least 1"),
    ("train.py trainer.accelerator=cuda", "trainer.accelerator=cuda:", "auto, cpu, gpu"),
    ("train.py name=a/../../b", "name=a/../../b:", "letters, digits"),
    # one against another
    (
        "train.py model.n_heads=7",
        "d_model=512 is not divisible by model.n_heads=7:",
        "both model.d_k and model.d_v",
    ),
    ("train.py data.micro_batches=4 trainer.devices=3", "data.micro_batches=4:", "multiple of 3"),
    (
        "train.py optimized_metric=val/bleu trainer.val_bleu_sentences=0",
        "optimized_metric=val/bleu:",
        "raise that",
    ),
    ("train.py trainer.best_metric=val/f1", "trainer.best_metric=val/f1:", "val/loss and val/bleu"),
    ("train.py data=files", "data.train", "data.train=PREFIX"),
    (
        "train.py ablation=e_learned model.max_positions=100",
        "model.max_positions=100:",
        "model.max_positions=306",
    ),
    ("train.py data.hub_path=null", "data.hub_path", "data=files"),
    # sweeps
    ("train.py -m model.n_headz=1,2", "model.n_headz:", "did you mean model.n_heads?"),
    ("train.py -m seed=1,2 name=x", "name=:", "sweep=NAME"),
    (
        "train.py -m hydra/sweeper=optuna model.dropout=0.2 model.dropout=0.1,0.3",
        "model.dropout:",
        "leave one out",
    ),
    # what is only shown is checked, too
    ("train.py model.dropout=2 --cfg=job", "model.dropout=2.0:", "below 1"),
    ("evaluate.py run=x split=dev --cfg job", "split=dev:", "val, test"),
    # what other programs have
    ("train.py hydra.run.dir=here", "hydra.run.dir", "set outputs=, name= or sweep="),
    ("train.py hydra.sweep.dir=here", "hydra.sweep.dir", "set outputs=, name= or sweep="),
    ("train.py hydra.sweep.subdir=x", "hydra.sweep.subdir", "is not supported, because Hydra"),
    ("train.py hydra.output_subdir=x", "hydra.output_subdir", "is not supported, because Hydra"),
    ("train.py hydra.job.chdir=true", "hydra.job.chdir", "is not supported, because Hydra"),
    ("train.py hydra.job.name=x", "hydra.job.name", "is not supported, because Hydra"),
    ("train.py hydra/job_logging=default", "hydra/job_logging", "is not supported, because Hydra"),
    ("train.py hydra/launcher=joblib", "hydra/launcher=joblib:", "add -m"),
    ("train.py hydra/launcher=slurm", "hydra/launcher=slurm:", "add -m"),
    ("train.py hydra.launcher.jobs=2", "hydra.launcher.jobs=2:", "add -m"),
    ("train.py hydra.verbose=true", "hydra.verbose=true:", "add -m"),
    ("train.py hydra.mode=MULTIRUN", "hydra.mode", "is not supported, because Hydra"),
    (
        "train.py --experimental-rerun x.pickle",
        "--experimental-rerun",
        "unrecognized arguments: --experimental-rerun",
    ),
    ("train.py --output_dir x", "--output_dir", "options are written key=value"),
    ("train.py --learning_rate=5e-5", "--learning_rate", "did you mean optim.peak_lr?"),
    ("train.py paths.output_dir=x", "paths.output_dir:", "did you mean name?"),
    ("train.py callbacks=early_stopping", "callbacks", "--help lists"),
    ("train.py -m hydra.sweep.dir=here", "hydra.sweep.dir", "set outputs=, name= or sweep="),
    ("train.py -m hydra/launcher=none seed=1,2", "'hydra/launcher/none'", "processes"),
    (
        "train.py optim.lr_scale=2 optim.peak_lr=1e-3",
        "optim.lr_scale and optim.peak_lr:",
        "leave one out",
    ),
    # the other commands
    ("evaluate.py", "run is missing:", "run=VALUE, a run's folder"),
    ("evaluate.py run=", "run is empty:", "run=outputs/NAME"),
    ("evaluate.py outputs/x", "outputs/x:", "run=outputs/x"),
    ("evaluate.py run=x beam_size=3", "beam_size:", "did you mean search.beam_size?"),
    ("evaluate.py run=x search.beam_size=0", "search.beam_size=0:", "at least 1"),
    ("evaluate.py run=x model=big", "model:", "an option of train; leave it out"),
    (
        "evaluate.py run=x trainer.devices=2",
        "trainer.devices:",
        "an option of train; did you mean devices?",
    ),
    (
        "evaluate.py run=x data.test=my/other",
        "data.test:",
        "an option of train; did you mean test?",
    ),
    (
        "evaluate.py -m run=x,y hydra/launcher=processes",
        "hydra/launcher=processes:",
        "in sweeps of train; leave it out",
    ),
    ("evaluate.py run=x --logger=none", "--logger:", "an option of train; leave it out"),
    # names that no file can have
    (f"train.py outputs={'o' * 256}", "outputs=oooo", "too long for a file; choose a shorter"),
    (f"evaluate.py run={'/'.join(['r' * 199] * 25)}", "run=rrrr", "too long for a file"),
    (f"train.py data.src_lang={'e' * 36}", "data.src_lang=eeee", "a code of at most 35 letters"),
    ("evaluate.py run=x accelerator=tpu", "accelerator=tpu:", "auto, cpu, gpu"),
    ("aiayn translat x", "'translat'", "'translate'"),
    ("aiayn translate", "'RUN'", "--help"),
    ("aiayn translate x --beam-sizes 3", "--beam-sizes", "--beam-size"),
    ("aiayn translate x --beam-size 0", "search.beam_size=0:", "at least 1"),
    ("aiayn translate x --n-best 5000", "'--n-best':", "less than or equal to 1000"),
    ("aiayn translate x --precision fp16", "--precision=fp16:", "float32, bfloat16, int8"),
    ("aiayn translate x --format xml", "--format=xml:", "text, jsonl, tree, brackets"),
    ("aiayn attention x", "'sentence'", "--help"),
    ("aiayn export x y", "'--format'", "--help"),
    (
        "aiayn table --parameters --by seed --all",
        "--parameters reads no run:",
        "leave out --by, --all",
    ),
]

DRIVER = """
import contextlib, io, json, runpy, sys
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
Hydra.get_mode = lambda *arguments, **options: None  # no file here sets it, and Hydra would compose everything twice
for script, *arguments in json.load(sys.stdin):
    GlobalHydra.instance().clear()
    sys.argv = [script, *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            if script == "aiayn":
                from aiayn.cli import main
                main()
            else:
                runpy.run_path(f"{root}/{script}", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code
    heavy = sorted({heavy} & set(sys.modules))
    ended = dict(code=code, out=out.getvalue(), err=err.getvalue(), heavy=heavy)
    sys.__stdout__.write(json.dumps(ended) + "\\n")
"""
SHOW = "train.py --cfg job"  # the first command, and no mistake
HEAVY = {
    "torch",
    "pytorch_lightning",
    "numpy",
    "tokenizers",
    "datasets",
    "wandb",
    "matplotlib",
    "sacrebleu",
}


QUICK = MISTAKES[::8]


def run_lines(lines: list[str], folder: Path) -> dict[str, dict]:
    """How each command line ended."""
    code = DRIVER.replace("{root}", str(ROOT)).replace("{heavy}", repr(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([shlex.split(line) for line in (SHOW, *lines)]),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    shown, *outcomes = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert shown["code"] == 0
    assert list(folder.iterdir()) == [], "mistakes write nothing"
    return dict(zip(lines, outcomes, strict=True))


@pytest.fixture(scope="module")
def quick_outcomes(tmp_path_factory):
    return run_lines([line for line, *_ in QUICK], tmp_path_factory.mktemp("mistakes"))


@pytest.fixture(scope="module")
def other_outcomes(tmp_path_factory):
    others = [line for line, *_ in MISTAKES if line not in {line for line, *_ in QUICK}]
    return run_lines(others, tmp_path_factory.mktemp("mistakes"))


@pytest.mark.parametrize(
    ("line", "key", "hint"), slow_but(QUICK, MISTAKES), ids=[f"{line:.99}" for line, *_ in MISTAKES]
)
def test_a_mistake_is_one_line_with_key_and_remedy_before_torch_is_loaded(request, line, key, hint):
    quick = line in {line for line, *_ in QUICK}
    outcome = request.getfixturevalue("quick_outcomes" if quick else "other_outcomes")[line]

    assert (outcome["code"], outcome["out"]) == (2, "")
    assert outcome["err"].startswith("error: ")
    assert outcome["err"].count("\n") == 1, outcome["err"]
    assert key in outcome["err"]
    assert hint in outcome["err"]
    assert outcome["heavy"] == []


def test_text_whose_name_is_too_long_is_refused_in_one_line(tmp_path):
    line = (
        f"train.py data=files data.train={'t' * 300} data.val=x data.src_lang=en data.tgt_lang=de"
    )
    outcome = run_lines([line], tmp_path)[line]

    assert (outcome["code"], outcome["out"]) == (2, "")
    assert outcome["err"].startswith("error: data.train=tttt")
    assert outcome["err"].endswith("too long for a file; choose a shorter name or path\n")
    assert outcome["err"].count("\n") == 1


# What only torch knows: how many devices there are.


@pytest.fixture
def no_gpu(tmp_path, monkeypatch):
    import torch

    write_text(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(outcome) -> str:
    """The one line of a refusal."""
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1, outcome.err
    return outcome.err


@pytest.mark.quick("1-trainer")
@pytest.mark.parametrize(
    ("present", "said_of_it"),
    [
        (0, "trainer.accelerator=gpu: torch"),
        (1, "trainer.devices=2: this machine has 1 GPU; lower trainer.devices, or set"),
        (3, "trainer.devices=4: this machine has 3 GPUs; lower trainer.devices, or set"),
    ],
)
def test_more_gpus_than_there_are_is_exit_code_2_before_any_data_is_touched(
    no_gpu, monkeypatch, present, said_of_it
):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: present)
    before = sorted(no_gpu.iterdir())
    accelerator = "trainer.accelerator=gpu" if present != 3 else "trainer.accelerator=auto"
    wanted = (accelerator, f"trainer.devices={present + 1}", "data.micro_batches=12")

    line = said(run_application("train.py", *TEXT, *TINY, *wanted, "data.train=absent"))

    assert said_of_it in line
    assert sorted(no_gpu.iterdir()) == before


def test_a_gpu_that_is_not_there_is_exit_code_2_for_scores_and_translations_too(no_gpu):
    assert run_application("train.py", *TEXT, *TINY, "name=small").code == 0
    before = sorted(no_gpu.rglob("*"))

    for command in (
        ("evaluate.py", "run=outputs/small", "accelerator=gpu"),
        ("aiayn", "translate", "outputs/small", str(Path("dev.en")), "--accelerator", "gpu"),
    ):
        assert "accelerator=gpu: torch " in said(run_application(*command))
    assert sorted(no_gpu.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    slow_but(
        ["aiayn translate --help"],
        [
            *(
                "evaluate.py --help",
                "train.py --cfg job",
                "train.py --info config",
                "train.py --version",
            ),
            *("aiayn --help", "aiayn table --parameters", "aiayn translate --help"),
        ],
    ),
)
@pytest.mark.parametrize("output", ["full", "closed pipe"])
def test_a_full_disk_behind_standard_output_is_one_line_and_a_closed_pipe_none(command, output):
    program, *arguments = command.split()
    call = (
        ["-c", "from aiayn.cli import main; main()"]
        if program == "aiayn"
        else [str(ROOT / program)]
    )
    reader, pipe = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    ended = subprocess.run(
        [sys.executable, *call, *arguments],
        stdout=full if output == "full" else pipe,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(pipe)
    os.close(full)
    if output == "closed pipe":  # like other programs
        assert ended.returncode in (-signal.SIGPIPE, 128 + signal.SIGPIPE)
        assert ended.stderr == ""
    else:
        assert ended.returncode == 6, ended.stderr
        assert ended.stderr.startswith("error: standard output cannot be written (")
        assert ended.stderr.count("\n") == 1


@pytest.mark.quick("1")
@pytest.mark.parametrize("closed", ["0", "1"])
def test_a_closed_standard_input_or_output_is_one_line(closed):
    program = (
        f"{shlex.quote(sys.executable)} -c 'from aiayn.cli import main; main()' translate x "
        f"{closed}>&-"
    )
    ended = subprocess.run(["sh", "-c", program], stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "standard input or output is closed" in ended.stderr


@pytest.mark.quick("evaluate.py")
@pytest.mark.parametrize(
    "command", ["train.py --cfg job", "evaluate.py run=x", "aiayn table --parameters"]
)
def test_closed_standard_streams_end_no_command_in_a_traceback_and_no_file_takes_their_place(
    command, tmp_path
):
    """What a library writes to descriptor 2 must not land in the file that was opened next."""
    program, *arguments = command.split()
    code = (
        "import os, sys, traceback\n"
        f"sys.argv = {[program, *arguments]!r}\n"
        "try:\n"
        + (
            "    from aiayn.cli import main; main()\n"
            if program == "aiayn"
            else f"    import runpy; runpy.run_path({str(ROOT / program)!r}, run_name='__main__')\n"
        )
        + "except SystemExit: pass\n"
        "except BaseException: traceback.print_exc(file=open('traceback', 'w'))\n"
        "open('first', 'wb').close(); file = open('next', 'wb'); os.write(2, b'a warning')\n"
    )
    (tmp_path / "program.py").write_text(code)
    subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} program.py <&- >&- 2>&-"],
        cwd=tmp_path,
        check=False,
    )
    assert not (tmp_path / "traceback").exists(), (tmp_path / "traceback").read_text()
    assert (tmp_path / "next").read_bytes() == b""
