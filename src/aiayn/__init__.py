"""Attention Is All You Need: the Transformer as one readable, reproducible application."""

__version__ = "0.1.0"
