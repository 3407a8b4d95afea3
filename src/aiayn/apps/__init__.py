"""What is built on a trained Transformer. Nothing but the list of commands imports it; see
`aiayn.doors`.
"""
