"""Head measures: one number for each head, folded from row blocks of its attention."""
