"""The version of Thresher, which goes into manifests; ``setup.py`` reads it from here."""

VERSION = "0.1.0"
