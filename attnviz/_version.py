"""The version, in a file of its own so that neither start-up nor the build has to look it up."""

__version__ = "0.1.0"
