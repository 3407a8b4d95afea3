"""What is reported of a validation, computed once more in another way from the checkpoint of its
step.
"""

from dataclasses import replace

import pytest
import torch
from applications import composed
from torch.nn import functional as F

from aiayn.data.sources import text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DivergedError, NonFiniteOutputError
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import read_jsonl
from aiayn.search.translator import Translator
from aiayn.token_ids import PAD_ID
from aiayn.training.run import train
from aiayn.training.start import validated_lines


def test_loss_and_perplexity_are_means_over_all_target_tokens_however_the_text_is_cut(
    config, tmp_path
):
    trainer = replace(config.trainer, max_steps=2, val_every=2, val_bleu_sentences=0)
    # Many batches of unequal size
    data = replace(config.data, max_tokens_per_device=61, micro_batches=16)
    settings = replace(config, trainer=trainer, data=data)
    folder = train(settings, tmp_path)
    [reported] = [record for record in read_jsonl(folder / "metrics.jsonl") if "val/loss" in record]

    stored = checkpoints.load(folder / "checkpoints" / "last.ckpt")
    tokenizer = Tokenizer.from_json(stored.tokenizer)
    model = Transformer(stored.config.model, tokenizer.vocab_size).eval()
    model.load_state_dict(stored.weights)
    sums, tokens = torch.zeros(2, dtype=torch.float64), 0
    sources, references = text_of(settings.data, "val").read()
    translator = Translator(model, tokenizer, settings.search, "cpu")
    with torch.no_grad():
        for src, tgt in zip(
            translator.source_ids(sources), translator.source_ids(references), strict=True
        ):
            src, tgt_in, tgt_out = (
                torch.tensor([ids]) for ids in ([*src, 2], [1, *tgt], [*tgt, 2])
            )
            mask = (src != PAD_ID)[:, None, None]
            logits = model.project(model.decode(tgt_in, model.encode(src, mask), mask))[0]
            sums += torch.stack(
                [
                    F.cross_entropy(logits, tgt_out[0], label_smoothing=eps, reduction="sum")
                    for eps in (0.1, 0.0)
                ]
            )
            tokens += tgt_out.numel()

    assert len(sources) > 20
    assert reported["val/loss"] == pytest.approx(float(sums[0]) / tokens, rel=1e-5)
    assert reported["val/ppl"] == pytest.approx(float((sums[1] / tokens).exp()), rel=1e-5)


def test_of_one_file_the_first_sentences_are_translated_and_of_several_files_some_of_each():
    config = composed("data=files", "data.train=a", "data.val=b", "trainer.val_bleu_sentences=4")
    assert list(validated_lines(config, 10)) == [0, 1, 2, 3]
    several = replace(config, data=replace(config.data, val=["b", "c"]))
    assert [n < 5 for n in validated_lines(several, 10)] == [True, True, False, False]
    assert list(validated_lines(several, 3)) == [0, 1, 2]


@pytest.mark.parametrize("key", ["lr_scale", "peak_lr"])
def test_an_output_that_is_not_finite_advises_the_rate_that_is_in_force(
    key, config, tmp_path, monkeypatch
):
    def translate(translator, lines, on_batch):
        raise NonFiniteOutputError("by step 1 of the search")

    monkeypatch.setattr(Translator, "translate", translate)
    optim = replace(config.optim, **{key: 0.001})
    with pytest.raises(DivergedError, match=rf"in a validation: lower optim\.{key} or raise"):
        train(replace(config, optim=optim), tmp_path)
