"""Renderers: values in, text or bytes out. None of them ever sees a source or a model."""
