"""The application with all its commands: importing a command's module puts it there."""

from attnviz.cli import heads
from attnviz.cli.app import app

__all__ = ["app", "heads"]
