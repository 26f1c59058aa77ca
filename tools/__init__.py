"""What the project is made and measured with; not part of the package."""
