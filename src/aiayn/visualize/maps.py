"""Where the heads look while a sentence is translated: the attention weights of every layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aiayn.errors import ConfigError, DataError
from aiayn.reports.drawing import readable
from aiayn.search.alignment import attention_of_pass
from aiayn.search.line_translator import LineTranslator
from aiayn.search.translations import Translation
from aiayn.token_ids import BOS_ID, EOS_ID

MARKS = {"<s>": "start", "</s>": "end", "▁": "space"}  # tokens that are not words


@dataclass(frozen=True)
class AttentionMaps:
    """Weights of L layers with H heads, rows summing to 1, for S source and T target positions.

    Row t of the decoder's maps is where the model looked when it wrote tgt_out[t], having read
    tgt_in[: t + 1].
    """

    src: list[str]  # S tokens, the last one the end mark
    tgt_in: list[str]  # T tokens, the first one the start mark
    tgt_out: list[str]  # T tokens, the last one the end mark
    encoder_self: Tensor  # (L, H, S, S)
    decoder_self: Tensor  # (L, H, T, T)
    cross: Tensor  # (L, H, T, S)
    sentence: str  # untouched
    translation: Translation


@torch.inference_mode()
def attention_maps(translator: LineTranslator, sentence: str) -> AttentionMaps:
    """Returns the weights for a sentence and the model's own best translation of it, which is read
    in one pass.

    Raises DataError for a blank sentence, ConfigError for an ensemble and for parts whose weights
    are not known, and what translating raises.
    """
    translator = translator.in_torch()
    models = translator.models
    if len(models) > 1:
        raise ConfigError(
            f"an ensemble of {len(models)} models has no attention maps; load a single run"
        )
    [[best]] = translator.n_best([sentence], 1)
    [src_ids] = translator.source_ids([sentence])
    if not src_ids:
        raise DataError("the sentence is blank; give one with words")
    model = models[0]
    source = [*src_ids, EOS_ID]
    read = [BOS_ID, *best.tokens]
    written = [*best.tokens, EOS_ID]
    src = torch.tensor([source], device=translator.device)
    tgt_in = torch.tensor([read], device=translator.device)
    encoder_self = [layer.self_attention for layer in model.encoder]
    decoder_self = [layer.self_attention for layer in model.decoder]
    cross = [layer.cross_attention for layer in model.decoder]
    modules: list[Any] = [*encoder_self, *decoder_self, *cross]
    doing = (
        f"with the attention between {src.numel()} and {tgt_in.numel()} subwords; give a shorter "
        "text"
    )
    weights_of = attention_of_pass(model, modules, src, tgt_in, doing)

    def stacked(modules: Sequence[Any]) -> Tensor:
        return torch.cat([weights_of(module) for module in modules])

    tokenizer = translator.tokenizer
    return AttentionMaps(
        src=tokenizer.source.tokens(source),
        tgt_in=tokenizer.tokens(read),
        tgt_out=tokenizer.tokens(written),
        encoder_self=stacked(encoder_self),
        decoder_self=stacked(decoder_self),
        cross=stacked(cross),
        sentence=sentence,
        translation=best,
    )


def token_labels(tokens: Sequence[str], longest: int = 24) -> list[str]:
    """Returns tokens as pictures show them: words as they are written, a dot before a subword that
    continues a word, and names for what is not a word, as in the explorer.
    """
    labels = []
    for token in tokens:
        continued = token[1:] if token.startswith("▁") else f"·{token}"
        labels.append(readable(MARKS.get(token, continued), longest))
    return labels
