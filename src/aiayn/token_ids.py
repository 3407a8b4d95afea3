"""The special tokens. Their ids are the same in tokenizers, prepared corpora, checkpoints and
exports.
"""

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
