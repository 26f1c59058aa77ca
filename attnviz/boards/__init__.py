"""Results as boards of panels: measures, differences and lessons in the one shape that every renderer draws."""
