"""See the attention heads of a trained model side by side."""
