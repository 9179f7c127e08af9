"""Record stages that score with models; the score is a signal, a threshold on it a rule."""
