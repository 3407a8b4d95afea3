"""Applications built on a trained Transformer. Only the list of commands imports them; see
`aiayn.doors`.
"""
