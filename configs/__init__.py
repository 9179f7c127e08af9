"""Ready-made configs; a package so that they are installed with the code, as data."""
