"""Corpus stages that remove duplicates."""
