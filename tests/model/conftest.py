import pytest
import torch
from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import DecoderLayer, EncoderLayer


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
    theirs.in_proj_bias.zero_()
    theirs.out_proj.weight.copy_(ours.w_o.weight)
    theirs.out_proj.bias.zero_()


@torch.no_grad()
def torch_layer(ours: EncoderLayer | DecoderLayer) -> nn.Module:
    kind = (
        nn.TransformerEncoderLayer if isinstance(ours, EncoderLayer) else nn.TransformerDecoderLayer
    )
    d_ff, d_model = ours.feed_forward.w_1.weight.shape
    n_heads = ours.self_attention.n_heads
    theirs = kind(d_model, n_heads, d_ff, 0.0, "relu", 1e-5, batch_first=True, norm_first=False)
    copy_attention(theirs.self_attn, ours.self_attention)
    if isinstance(ours, DecoderLayer):
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        theirs.norm3.load_state_dict(ours.norm_3.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    theirs.norm1.load_state_dict(ours.norm_1.norm.state_dict())
    theirs.norm2.load_state_dict(ours.norm_2.norm.state_dict())
    return theirs


@pytest.fixture(scope="session")
def torch_twin():
    """torch_twin(layer): torch's own encoder or decoder layer, post-norm and ReLU, with the same
    weights.
    """
    return torch_layer
